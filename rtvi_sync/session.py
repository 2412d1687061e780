"""One session: from the first step of an attempt to the last event after its end.

A session binds an engine, a transport and the calls that wait for answers. It is used once: late results of an
abandoned attempt meet a dead session and come to nothing. It refers to the client's dispatcher weakly, so that a
client which is dropped while connected can be collected; its session is then torn down.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ._version import __version__
from .concurrency.cancel import AbortController
from .concurrency.deadline import Deadline, join_thread, wait_for_event
from .concurrency.hub import acquire_hub
from .concurrency.lanes import Lane, LaneOverflow
from .concurrency.lifecycle import (
    fork_generation,
    log_stack_of,
    register_for_exit,
    start_thread,
    unregister_for_exit,
)
from .concurrency.pending import Pending, Waiter
from .dispatch import Dispatcher
from .errors import (
    BotNotReadyError,
    DisconnectedError,
    ForkedProcessError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    StartBotError,
)
from .events import Event, RTVIEvent
from .messages import BotReadyData, RTVIMessage
from .protocol import engine as protocol
from .protocol.states import ACTIVE, CloseInfo, TransportState, may_follow
from .transports.base import Inbound, Transport, TransportOptions

logger = logging.getLogger(__name__)

# What `disconnect()` promises.
TEARDOWN_LIMIT = 5.0
# A thread whose socket was shut down needs this long to find out, even on a busy machine; one that sits in a name
# look-up or in the caller's own code is left behind after it.
_SETTLE_TIMEOUT = 0.1


class StateCell:
    """The state of a client, changed by its sessions one after the other; its order is that of the events."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.value = TransportState.DISCONNECTED
        self.owner: object = None  # only the session that came last may change the state


def about_this_client() -> dict[str, str]:
    """What `client-ready` tells the bot."""
    return {
        "library": "rtvi_sync",
        "library_version": __version__,
        "platform": platform.system().lower() or "unknown",
        "platform_version": platform.release(),
    }


class Session:
    """One attempt to connect and the session that comes of it.

    Args:
        transport: carries it; nobody else uses it until `closed` is set.
        dispatcher: of the client. Held weakly.
        states: of the client.
        deadline: limit of the attempt.
        make_options: completes the transport's options with what is the session's own.
    """

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        states: StateCell,
        deadline: Deadline,
        make_options: Callable[..., TransportOptions],
    ) -> None:
        self.transport = transport
        self.serial = dispatcher.serial
        self._dispatcher = weakref.ref(dispatcher)
        self._states = states
        self._lane = states.lane
        self._generation = fork_generation()
        self.hub = acquire_hub()
        self.engine = protocol.Engine(about_this_client())
        self.abort = AbortController(deadline, lambda: StartBotError("The connect request was aborted"))
        self.ready: Waiter[BotReadyData] = Waiter()
        self.connect_thread: threading.Thread | None = None
        self._pending: Pending[RTVIMessage] = Pending()
        # Guards `_ending`, `_ready_settled`, `_opened` and `_early_ready`: whoever sets one first does what follows
        # from it. Any thread may hold it, for an assignment.
        self._lock = threading.Lock()
        self._ending: CloseInfo | None = None
        self._ready_settled = False
        self._silent = False  # the events that are still queued are dropped
        self._opened = False  # `connected` was announced
        self._early_ready: protocol.Ready | None = None  # bot-ready came before that
        self._close_thread: threading.Thread | None = None
        #: The transport is closed, every waiting call has failed, and another session may begin.
        self.closed = threading.Event()
        #: The last event was delivered and the session's threads are gone, or the limit has passed.
        self.finished = threading.Event()
        self._make_options = make_options
        states.owner = self
        register_for_exit(self)

    def initialize_transport(self) -> None:
        """Tell the transport that it serves this session now. On the connect thread."""
        options = self._make_options(
            client_ready=self.engine.client_ready,
            on_interruption=self._interrupt,
            on_closed=self.end,
            on_event=self.announce,
            hub=self.hub,
        )
        self.transport.initialize(options, self._receive)

    # -- what callers ask: any thread ---------------------------------------------------------------------------------

    @property
    def forked(self) -> bool:
        """True in a child process that was forked while the session was live."""
        return self._generation != fork_generation()

    @property
    def ending(self) -> bool:
        return self._ending is not None

    def check_ready(self) -> None:
        """Raise unless messages can be exchanged.

        Raises:
            ForkedProcessError, DisconnectedError, BotNotReadyError
        """
        if self.forked:
            raise forked_error()
        if self._ending is not None:
            raise self.disconnected_error()
        if self.engine.bot_ready is None:
            raise BotNotReadyError("The bot is not ready yet; wait for connect() to return")

    def send(self, message: RTVIMessage) -> None:
        """Send `message`; waits for nothing."""
        self.check_ready()
        self.engine.check_outbound(message)
        self.transport.send_message(message)

    def request(self, message: RTVIMessage, deadline: Deadline) -> RTVIMessage:
        """Send `message` and wait for the answer with its id.

        Raises:
            RequestTimeoutError, RequestRejectedError, DisconnectedError
        """
        self.check_ready()
        self.engine.check_outbound(message)
        if message.id is None:
            raise ValueError("A request needs an id, or its answer cannot be told from others")
        waiter = self._pending.register(message.id)
        try:
            self.transport.send_message(message)
            if not waiter.wait(deadline):
                raise RequestTimeoutError(
                    f"The bot has not answered the {message.type!r} request within {deadline.timeout} s; "
                    "the session goes on. Pass a larger timeout if the bot needs longer."
                )
            return waiter.result()
        finally:
            self._pending.discard(message.id)

    def disconnected_error(self) -> DisconnectedError:
        """For a call that needed this session."""
        info = self._ending or CloseInfo()
        error = DisconnectedError(
            f"{_how_it_ended(info)}; call connect() for a new one",
            code=info.code,
            reason=info.reason,
            initiator=info.initiator,
        )
        error.__cause__ = info.error
        return error

    # -- states and events: any thread --------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and say so, unless another session has taken over or `state` cannot follow."""

        def enter() -> bool:
            cell = self._states
            if cell.owner is not self or not may_follow(cell.value, state):
                return False
            if self._ending is not None and state not in _END_STATES:
                return False
            cell.value = state
            return True

        return self._post(RTVIEvent.TRANSPORT_STATE_CHANGED, state, when=enter)

    def announce(self, type_: RTVIEvent, data: Any = None, message: RTVIMessage | None = None) -> None:
        """Queue an event for whoever listens."""
        self._post(type_, data, message)

    def _post(
        self,
        type_: RTVIEvent,
        data: Any = None,
        message: RTVIMessage | None = None,
        size: int = 0,
        when: Callable[[], bool] | None = None,
    ) -> bool:
        dispatcher = self._dispatcher()
        item = None
        if dispatcher is not None and dispatcher.wants(type_):
            item = partial(self._deliver, Event(type=type_, data=data, received_at=time.monotonic(), message=message))
        elif when is None:
            return True
        try:
            # The events of the session's own life are few, and the program relies on them: they are queued over the
            # limit.
            return self._lane.post(item, self.hub.workers, size, force=message is None, when=when)
        except LaneOverflow:
            self._overflow()
            return False

    def _deliver(self, event: Event) -> None:
        """On the lane."""
        dispatcher = self._dispatcher()
        if dispatcher is None or self._silent:
            return
        try:
            dispatcher.deliver(event)
        except LaneOverflow:
            self._overflow()

    def _overflow(self) -> None:
        error = RTVIError(
            "Events come faster than the program handles them, and the queue is full; the session is ended. "
            "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
        )
        self.end(CloseInfo(initiator="client", error=error))

    # -- what the transport delivers: one thread at a time ------------------------------------------------------------

    def _receive(self, message: Inbound) -> None:
        if self._ending is not None or self.forked:
            return
        size = len(message) if isinstance(message, (str, bytes)) else 0
        for effect in self.engine.receive(message):
            self._perform(effect, size)

    def _perform(self, effect: protocol.Effect, size: int) -> None:
        if isinstance(effect, protocol.Deliver):
            self._deliver_message(effect, size)
        elif isinstance(effect, protocol.Resolve):
            if effect.message.id is not None and not self._pending.resolve(effect.message.id, effect.message):
                logger.debug("An answer with the id %r, which nobody waits for, is ignored", effect.message.id)
        elif isinstance(effect, protocol.Reject):
            if effect.message.id is not None:
                error = RequestRejectedError(f"The bot refused the request: {effect.text}", response=effect.message)
                self._pending.reject(effect.message.id, error)
        elif isinstance(effect, protocol.Interrupt):
            self._interrupt()
        elif isinstance(effect, protocol.Ready):
            self._become_ready(effect)
        elif isinstance(effect, protocol.Warn):
            logger.warning("%s", effect.text)
        else:
            self.end(CloseInfo(initiator="server", error=effect.error))

    def _deliver_message(self, effect: protocol.Deliver, size: int) -> None:
        type_, data = effect.event, None
        dispatcher = self._dispatcher()
        if dispatcher is None:
            return
        if dispatcher.wants(type_):
            try:
                data = effect.decode()
            except ProtocolError as error:
                logger.warning(
                    "The bot sent a message that breaks the protocol; it is delivered as unknown_message. %s", error
                )
                type_, data = RTVIEvent.UNKNOWN_MESSAGE, effect.message
            self._post(type_, data, effect.message, size)

    def _become_ready(self, effect: protocol.Ready) -> None:
        with self._lock:
            if not self._opened:
                self._early_ready = effect
                return
        if self.move(TransportState.READY):
            self._post(RTVIEvent.BOT_READY, effect.data, effect.message)
            self.transport.start_media()
        self._settle_ready(effect.data, None)

    def _settle_ready(self, data: BotReadyData | None, error: BaseException | None) -> None:
        with self._lock:
            if self._ready_settled:
                return
            self._ready_settled = True
        self.ready._settle(data, error)

    def _interrupt(self) -> None:
        self.transport.interrupt_playback()

    # -- the end ------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """The transport is open. On the connect thread."""
        if not self.move(TransportState.CONNECTED):
            return
        self.announce(RTVIEvent.CONNECTED)
        self.announce(RTVIEvent.BOT_CONNECTED)
        with self._lock:
            self._opened = True
            early, self._early_ready = self._early_ready, None
        if early is not None:
            self._become_ready(early)

    def end(self, info: CloseInfo) -> None:
        """End the session, whoever calls first says how. Any thread; does not wait."""
        if not self._begin_end(info):
            return
        try:
            self._close_thread = start_thread("close", self._tear_down, True)
        except RuntimeError:  # the interpreter is shutting down and starts no more threads
            self._tear_down(False)

    def _begin_end(self, info: CloseInfo) -> bool:
        with self._lock:
            if self._ending is not None:
                return False
            self._ending = info
        # Before anything that takes time: nobody may wait for answers that cannot come.
        self.abort.abort(info.error if isinstance(info.error, RTVIError) else self.disconnected_error())
        self._pending.fail_all(self.disconnected_error)
        self._settle_ready(None, self.disconnected_error())
        return True

    def wait_closed(self, deadline: Deadline) -> bool:
        """Wait until another session may begin; False, and a log entry, if `deadline` passed first."""
        if self._on_own_thread() or wait_for_event(self.closed, deadline):
            return True
        if self._close_thread is not None:
            log_stack_of([self._close_thread], "A session is not closed in time")
        return False

    def wait_finished(self, deadline: Deadline) -> bool:
        """Wait until the last event was delivered and the threads are gone; False if `deadline` passed first.

        Inside a handler of the same client, and in manual mode, delivery cannot be waited for: there it waits for
        `closed`.
        """
        if self._on_own_thread():
            return True
        if self._lane.is_current:
            return wait_for_event(self.closed, deadline)
        thread = self._close_thread
        return wait_for_event(self.finished, deadline) and (thread is None or join_thread(thread, deadline))

    def _on_own_thread(self) -> bool:
        """True on a thread that the end of the session waits for: it must not wait for the end."""
        return threading.current_thread() in (self._close_thread, self.connect_thread)

    def _tear_down(self, on_own_thread: bool) -> None:
        """Everything that ends with the session, in the order of `docs/threading.md`."""
        deadline = Deadline(TEARDOWN_LIMIT)
        try:
            self._close(deadline)
        except Exception:
            logger.exception("Closing the transport failed")
        finally:
            delivered = self._announce_end()
            self.closed.set()
        if not self._lane.manual:
            if not on_own_thread:
                # There may be no worker any more: what is still to be delivered is delivered here.
                self._lane.run_queued(Deadline(1.0), until=delivered.is_set)
            self._await_delivery(delivered, deadline)
        if self.hub.release():
            left = self.hub.join(Deadline(deadline.sooner(1.0)))
            if left:
                log_stack_of(left, "A session has ended")
        unregister_for_exit(self)
        self.finished.set()

    def _close(self, deadline: Deadline) -> None:
        connect_thread = self.connect_thread
        if connect_thread is not None and connect_thread is not threading.current_thread():
            join_thread(connect_thread, Deadline(deadline.sooner(_SETTLE_TIMEOUT)))
        if self._states.value in ACTIVE:
            self.move(TransportState.DISCONNECTING)
        self.transport.disconnect()

    def _announce_end(self) -> threading.Event:
        """Queue the last events. Returns what is set once they are delivered."""
        info = self._ending or CloseInfo()
        was_ready = self.engine.bot_ready is not None
        failed = not was_ready and (info.initiator != "client" or info.error is not None)
        if self._opened:
            self.announce(RTVIEvent.BOT_DISCONNECTED)
        self.move(TransportState.ERROR if failed else TransportState.DISCONNECTED)
        if self._opened:
            self.announce(RTVIEvent.DISCONNECTED, info)
        dispatcher = self._dispatcher()
        if dispatcher is not None:
            dispatcher.session_ended(self.serial)
        delivered = threading.Event()
        self._lane.post(partial(self._delivered_all, delivered, info), self.hub.workers, force=True)
        return delivered

    def _delivered_all(self, delivered: threading.Event, info: CloseInfo) -> None:
        dispatcher = self._dispatcher()
        if dispatcher is not None:
            dispatcher.end_streams(self.serial, info)
        delivered.set()

    def _await_delivery(self, delivered: threading.Event, deadline: Deadline) -> None:
        if wait_for_event(delivered, deadline) or self._states.owner is not self:
            return  # a handler of the last event is at work on the next session already: that is not too long
        self._silent = True
        log_stack_of(
            self.hub.workers.threads(), "A handler is still running though its session ended; its events are dropped"
        )

    def at_exit(self) -> None:
        """The interpreter exits: end the session on this thread."""
        if self.forked:
            return
        if self._begin_end(CloseInfo(initiator="client")):
            self._tear_down(False)
        else:
            wait_for_event(self.finished, Deadline(TEARDOWN_LIMIT))


def _how_it_ended(info: CloseInfo) -> str:
    who = {
        "client": "This client ended the session",
        "server": "The bot ended the session",
        "network": "The connection to the bot was lost",
    }[info.initiator]
    if info.error is not None:
        return f"{who}: {info.error}"
    if info.code is not None:
        return f"{who} (code {info.code}{': ' + info.reason if info.reason else ''})"
    return who


_END_STATES = (TransportState.DISCONNECTING, TransportState.DISCONNECTED, TransportState.ERROR)


def forked_error() -> ForkedProcessError:
    return ForkedProcessError(
        "This client was connected when the process forked, so its session belongs to the parent. "
        "Make and connect a client in the child process: in a web worker, connect in the request or in a post-fork "
        "hook, not at import."
    )


def collected(session_of: Mapping[str, Session | None]) -> Callable[[], None]:
    """What happens when a client is collected: its session, if it is live, is torn down."""

    def finalize() -> None:
        session = session_of.get("session")
        if session is None or session.ending or session.forked or session.finished.is_set():
            return
        # A finalizer may run anywhere, even under a lock: it only leaves a note for the io thread.
        session.hub.io.call(lambda: session.end(CloseInfo(initiator="client")))
        warnings.warn(
            "An RTVIClient was dropped while connected; its session is ended. "
            "Call disconnect(), or use `with client:`.",
            ResourceWarning,
            stacklevel=2,
        )

    return finalize
