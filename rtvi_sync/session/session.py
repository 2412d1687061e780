"""One session: from the first step of an attempt to the last event after its end.

A session binds an engine, a transport and the calls that wait for answers. It is used once: late results of an
abandoned attempt meet a dead session and come to nothing. Nothing in it refers to the client or its handlers but
weakly, so that a client which is dropped while connected can be collected; its session is then torn down.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

from .._version import __version__
from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import (
    NO_THREAD_PAUSE,
    fork_generation,
    is_exiting,
    log_stack_of,
    register_for_exit,
)
from ..concurrency.pool_task import PoolTask
from ..concurrency.runtime import Runtime, acquire_runtime
from ..errors import (
    BotNotReadyError,
    InvalidTransportParamsError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
    RTVIError,
    StartBotError,
    TransportStartError,
    UnsupportedFeatureError,
)
from ..events import RTVIEvent
from ..media.manager import MediaManager
from ..messages import BotReadyData, RTVIClientConfigOption, RTVIMessage
from ..protocol import engine as protocol
from ..protocol import envelope
from ..protocol.dialects import load_payloads
from ..protocol.states import CloseInfo, TransportState
from ..transports.base import Inbound, Transport, TransportOptions
from . import ending
from .dispatcher import Dispatcher, forked_error
from .effects import Effects
from .function_calls import CALL_EVENTS, FunctionCalls
from .publisher import ClientState, EventPublisher

logger: logging.Logger = logging.getLogger(__name__)

# What else the silence of a bot may mean. (Seen: Pipecat 0.0.73 and 0.0.108.)
_SILENCE = {"action": " If the action has failed, see the bot's log, and connect anew: it may answer no further one."}

# The session that each transport serves, by the transport's identity: two clients must not share one. It keeps live
# sessions, which nothing else may hold strongly.
_sessions_of_transports: dict[int, Session] = {}


def about_this_client() -> dict[str, str]:
    """What `client-ready` tells the bot."""
    return {
        "library": "rtvi_sync",
        "library_version": __version__,
        "platform": platform.system().lower() or "unknown",
        "platform_version": platform.release(),
    }


class ReconnectHook(Protocol):
    """What may replace a session that was ready and is lost. Called on the close thread."""

    def replaces(self, info: CloseInfo) -> bool:
        """True if a session that ends so is to be replaced."""

    def lost(self, session: Session) -> None:
        """It is time to replace `session`; the last thing that its end does."""


class Session:
    """One attempt to connect and the session that comes of it.

    Args:
        transport: carries it; nobody else may use it until `closed` is set.
        dispatcher, states, media: of the client.
        deadline: limit of the attempt.
        successor: what may replace the session when it is lost; None: nothing.
        is_replacement: the attempt is the successor's: it is his too when it fails.

    Raises:
        InvalidTransportParamsError: the transport serves another session.
    """

    def __init__(
        self,
        transport: Transport,
        dispatcher: Dispatcher,
        states: ClientState,
        media: MediaManager,
        deadline: Deadline,
        *,
        successor: ReconnectHook | None = None,
        is_replacement: bool = False,
    ) -> None:
        self.transport = transport
        self.media = media
        self._successor, self._is_replacement = successor, is_replacement
        self.is_replaced: bool = False
        if _sessions_of_transports.setdefault(id(transport), self) is not self:
            raise InvalidTransportParamsError(
                f"The {transport.name} transport serves a session of another client; give each client its own"
            )
        try:
            self.runtime: Runtime = acquire_runtime()
            self._begin(dispatcher, states, deadline)
        except BaseException:
            _sessions_of_transports.pop(id(transport), None)
            if hasattr(self, "runtime"):
                self.runtime.release()
            raise

    def _begin(self, dispatcher: Dispatcher, states: ClientState, deadline: Deadline) -> None:
        self.publisher: EventPublisher = EventPublisher(
            dispatcher, states, self.runtime.workers, session=dispatcher.begin_session(), on_overflow=self._overflow
        )
        self._generation = fork_generation()
        self._engine = protocol.Engine(about_this_client())
        self._effects = Effects(self.publisher)
        self.functions: FunctionCalls = FunctionCalls(self.publisher, self.runtime.workers, self.send)
        self.abort: AbortController = AbortController(
            deadline, lambda: StartBotError("The connect request was aborted")
        )
        self.abort.signal.on_abort(self._aborted)
        #: The attempt, on a thread of its own.
        self.connecting: PoolTask | None = None
        # Guards `_ending`, `_tearing_down`, `_opened` and `_early_ready`: whoever sets one first does what follows
        # from it. Any thread of the package may hold it, for an assignment; re-entrant, because a finalizer may end the
        # session in the midst of one.
        self._lock = threading.RLock()
        self._ending: CloseInfo | None = None
        self._tearing_down = self._opened = False
        self._early_ready: protocol.Ready | None = None  # bot-ready came before the transport was open
        self._closing: PoolTask | None = None
        self.transport_deadline: Deadline | None = None  #: limit of the transport's `disconnect()`, once it is called
        #: The transport was told of this session, and must be told of its end.
        self.initialized: bool = False
        #: The transport knows of this session: what is changed from now on, it must be told.
        self.introduced: bool = False
        # By thread: each counts its own, so that nobody who sends holds a lock.
        self._sent: defaultdict[int, int] = defaultdict(int)
        self.messages_received: int = 0  # counted by whoever delivers them: one thread at a time
        #: What the ready bot said about itself; None before.
        self.bot: BotReadyData | None = None
        #: The attempt has come to its end: the bot is ready, or the session closed.
        self.connect_done: Latch = Latch()
        #: The transport is closed, every waiting call has failed, and another session may begin.
        self.closed: Latch = Latch()
        #: The last event was delivered and the session's threads are gone, or the limit has passed.
        self.drained: Latch = Latch()
        register_for_exit(self)

    def own_options(self) -> dict[str, Any]:
        """The part of `TransportOptions` that is the session's own."""
        return {
            "client_ready": self._engine.client_ready,
            "on_interruption": self._interrupt,
            "on_closed": self.end,
            "on_event": self.publisher.event,
            "on_messages": self._receive_all,
            "runtime": self.runtime,
            "check_wanted": self.check_wanted,
            "time_to_close": lambda: ending.time_to_close(self.transport_deadline),
        }

    def initialize_transport(self, options: TransportOptions) -> None:
        """Tell the transport that it serves this session now. On the connect thread."""
        load_payloads()
        self.initialized = True  # before the call: one that hangs has to be told of the end as well
        self.media.reports.outlet = self.publisher
        self.media.expect()
        self.check_wanted()  # else its end has come first, and does not come again
        self.transport.initialize(options, self._receive)
        self.introduced = True

    # -- what callers ask: any thread ---------------------------------------------------------------------------------

    @property
    def in_other_process(self) -> bool:
        """True in a child process that was forked from the session's."""
        return self._generation != fork_generation()

    @property
    def lost_by_fork(self) -> bool:
        """True in a child process that was forked while the session was live."""
        return self.in_other_process and not self.closed.is_set()

    @property
    def live(self) -> bool:
        """True until its end begins; False in a forked child."""
        return self._ending is None and not self.in_other_process

    def ask_successor(self) -> None:
        """Find out, once, whether the session is to be replaced."""
        info = self.info
        if self._successor is not None and not info.by_application:
            # A failed attempt to replace a session is the successor's affair anyway.
            self.is_replaced = self._successor.replaces(info) if self.publisher.was_ready else self._is_replacement

    def hand_over(self) -> None:
        """The end is complete: whatever follows may begin."""
        if self._successor is not None and self.publisher.was_ready and self.is_replaced:
            self._successor.lost(self)

    @property
    def was_opened(self) -> bool:
        """True if the transport was open."""
        return self._opened

    @property
    def ending(self) -> bool:
        """True from the beginning of its end on."""
        return self._ending is not None

    def check_ready(self) -> None:
        """Raise unless messages can be exchanged.

        Raises:
            ForkedProcessError, BotNotReadyError
        """
        if self.lost_by_fork:
            raise forked_error()
        if self._ending is not None:
            info, failed = self._ending, not self.publisher.was_ready
            how = f"the last connect() failed: {info.error or info.describe()}" if failed else info.describe()
            raise BotNotReadyError(f"There is no bot ({how}). Call connect() first") from info.failure()
        if not self.publisher.was_ready:
            raise BotNotReadyError("The bot is not ready yet; wait for connect() to return")

    def send(self, message: RTVIMessage) -> None:
        """Send `message`; waits for nothing."""
        self.check_ready()
        self._engine.outbound(message)
        self.transport.send_message(message)
        self._count_sent()

    def request(self, message: RTVIMessage, deadline: Deadline) -> RTVIMessage:
        """Send `message` and wait for the answer with its id.

        Raises:
            RequestTimeoutError, RequestRejectedError, DisconnectedError, UnsupportedFeatureError, ProtocolError
        """
        self.check_ready()
        answer: Future[RTVIMessage] = Future()
        try:
            self._engine.outbound(message, answer)
            self.transport.send_message(message)
            self._count_sent()
            if not answer.wait(deadline):
                raise RequestTimeoutError(
                    f"The bot has not answered the {message.type!r} request within {deadline.timeout:.3g} s; the "
                    f"session goes on. Pass a larger timeout if the bot needs longer.{_SILENCE.get(message.type, '')}"
                )
            return answer.result()
        finally:
            if message.id is not None:
                self._engine.pending.abandon(message.id, answer)

    @property
    def version(self) -> str | None:
        """The protocol version that the bot speaks; None before it is ready."""
        return self._engine.version

    @property
    def config(self) -> tuple[RTVIClientConfigOption, ...] | None:
        """The bot's config as last heard; None if it has told none."""
        return self._engine.config

    def fetch_config(self, deadline: Deadline) -> None:
        """Ask for a config that the bot has by its version and has not told. A failure does not end the session.

        Raises:
            DisconnectedError: the session ended.
        """
        if not self._engine.wants_config:
            return
        try:
            self.request(self._engine.config_request, deadline)
        except BotNotReadyError:  # it was ready, so the session has ended since
            raise self.info.as_error() from None
        except (RequestRejectedError, UnsupportedFeatureError) as error:
            logger.debug("The bot has no config: %s", error)
        except (RequestTimeoutError, ProtocolError) as error:
            logger.warning("client.config stays None: %s", error)

    def _count_sent(self) -> None:
        self._sent[threading.get_ident()] += 1

    @property
    def messages_sent(self) -> int:
        """How many were sent."""
        return sum(self._sent.copy().values())

    def failure(self) -> RTVIError:
        """Why the session that has ended, or is ending, did not come to be."""
        return self.info.failure()

    @property
    def info(self) -> CloseInfo:
        """How it ends, or has ended."""
        return self._ending or CloseInfo()

    def check_wanted(self) -> None:
        """Raise if the attempt was given up: whoever is at work on it must not go on. On the connect thread."""
        self.abort.signal.raise_if_aborted()
        if self._ending is not None:  # the signal follows in a moment
            raise self.info.as_error()

    # -- states -------------------------------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and say so; False if it cannot follow."""
        moved = self.publisher.move(state)
        self.transport.state = self.publisher.state
        return moved

    def opened(self) -> None:
        """The transport is open. On the connect thread."""
        opened = self.publisher.opened()
        self.transport.state = self.publisher.state
        if not opened:
            return
        with self._lock:
            self._opened = True
            early, self._early_ready = self._early_ready, None
        if early is not None:
            self._become_ready(early)

    # -- what the transport delivers: one thread at a time ------------------------------------------------------------

    def _receive(self, message: Inbound) -> None:
        self._receive_all((message,))

    def _receive_all(self, messages: Iterable[Inbound]) -> None:
        """What came together. Its events are queued together, but before whatever they came before."""
        receive, effects, estimated_size, clock = (
            self._engine.receive,
            self._effects,
            envelope.estimated_size,
            time.monotonic,
        )
        try:
            for message in messages:
                if self._ending is not None:
                    break
                self.messages_received += 1
                # By its type first, as nearly all are: that takes half as long.
                text = message if type(message) is str or isinstance(message, (str, bytes)) else None
                size = estimated_size(text) if text is not None else 0
                for effect in receive(message):
                    if type(effect) is protocol.Deliver:
                        # Each has a time of its own: programs compare them to see what came first.
                        effects.deliver(effect, text or effect.message, clock(), size)
                        if effect.event in CALL_EVENTS:
                            effects.flush()
                            self.functions.called(effect, size)
                    else:
                        effects.flush()
                        self._perform(effect)
        finally:
            effects.flush()

    def _perform(self, effect: protocol.Effect) -> None:
        if isinstance(effect, protocol.Interrupt):
            self._interrupt()
        elif isinstance(effect, protocol.Ready):
            self._become_ready(effect)
        elif isinstance(effect, protocol.Close):
            self.end(CloseInfo(initiator="server", error=effect.error))
        else:
            self._effects.perform(effect)

    def _become_ready(self, effect: protocol.Ready) -> None:
        with self._lock:
            if not self._opened:
                self._early_ready = effect
                return
        try:
            self.transport.start_media()
        except BaseException as error:  # noqa: BLE001 - a transport may be anybody's
            failure = TransportStartError(f"The {self.transport.name} transport could not start its media: {error}")
            failure.__cause__ = error
            self.end(CloseInfo(initiator="client", error=failure))
            return
        if self.move(TransportState.READY):
            self.publisher.event(RTVIEvent.BOT_READY, effect.data, effect.message)
            self.bot = effect.data
            self.connect_done.set()

    def _interrupt(self) -> None:
        try:
            self.transport.interrupt_playback()
        except BaseException:
            logger.exception("The %s transport could not drop what the bot said", self.transport.name)

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self, info: CloseInfo) -> None:
        """End the session; whoever calls first says how. Any thread; does not wait."""
        self._begin_end(info)
        # Not only whoever came first: Ctrl-C may have kept him from it.
        if self._closing is not None or self._tearing_down:
            return
        job = PoolTask("close", lambda: self._tear_down(job))
        try:
            job.start()
            # Of two that are started at once one does the work, and says so.
            self._closing = self._closing or job
        except RuntimeError:
            if is_exiting():
                self._tear_down(None, Deadline(ending.TEARDOWN_LIMIT))
            else:  # the system has no thread to give just now, and this one may be the io thread
                io = self.runtime.io
                io.call(lambda: io.call_later(NO_THREAD_PAUSE, lambda: self.end(info)))

    def end_and_wait(self, info: CloseInfo, linger: float | None = None) -> None:
        """End the session and wait until it has ended, within the limit of `disconnect()`.

        Args:
            info: how it ends, if it is not ending already.
            linger: seconds to wait for handlers of the last events; None: the rest of the limit.
        """
        self.end(info)
        deadline = Deadline(ending.TEARDOWN_LIMIT)
        if self.wait_closed(deadline):
            self.wait_drained(deadline if linger is None else Deadline(linger))

    def wait_closed(self, deadline: Deadline) -> bool:
        """Wait until another session may begin; False, and a log entry, if `deadline` passed first."""
        if self._on_own_thread() or self.closed.wait(deadline):
            return True
        if self._closing is not None:
            log_stack_of(self._closing.threads, "A session is not closed in time")
        return False

    def wait_drained(self, deadline: Deadline) -> bool:
        """Wait until the last event was delivered and the threads are gone; False if `deadline` passed first.

        Inside a handler of the same client, or a function that its bot called, it does not wait: the last event follows
        when the handler returns.
        """
        if self._on_own_thread() or self.publisher.in_handler or self.functions.is_current:
            return True
        return self.drained.wait(deadline) and (self._closing is None or self._closing.done.wait(deadline))

    def at_exit(self, deadline: Deadline) -> None:
        """The interpreter exits: end the session on this thread, before `deadline`."""
        if self.lost_by_fork:
            return
        self._begin_end(CloseInfo(initiator="client"))
        self._tear_down(None, deadline)
        self.drained.wait(deadline)

    def _begin_end(self, info: CloseInfo) -> None:
        with self._lock:
            if self._ending is not None:
                return
            self._ending = info or CloseInfo(initiator="network")  # a transport may be anybody's
        # Before anything that takes time: nobody may wait for answers that cannot come.
        self._engine.pending.fail_all(self.info.as_error)
        self.publisher.end()

    def _aborted(self) -> None:
        """The program has called `abort_controller.abort()`, or the attempt is being abandoned by `end()`."""
        if not self.publisher.was_ready:
            self.end(CloseInfo(initiator="client", error=self.abort.signal.reason))

    def _overflow(self) -> None:
        error = RTVIError(
            "Events come faster than the program handles them, and the queue is full; the session is ended. "
            "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
        )
        self.end(CloseInfo(initiator="client", error=error))

    def _on_own_thread(self) -> bool:
        """True on a thread that the end of the session waits for: it must not wait for the end."""
        own = self.runtime.io, self._closing, self.connecting
        return any(each is not None and each.is_current for each in own)

    def _tear_down(self, job: PoolTask | None, exit_deadline: Deadline | None = None) -> None:
        """Everything that ends with the session, in order. As a job, or, with a deadline, at exit."""
        with self._lock:
            if self._tearing_down:
                return
            self._tearing_down = True
        self._closing = job or self._closing
        ending.tear_down(self, exit_deadline)

    def release_transport(self) -> None:
        """The transport is closed: another session may have it."""
        self.transport.state = self.publisher.state
        _sessions_of_transports.pop(id(self.transport), None)
