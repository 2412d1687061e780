"""One session: from the first step of an attempt to the last event after its end.

A session binds an engine, a transport and the calls that wait for answers. It is used once: late results of an
abandoned attempt meet a dead session and come to nothing. Nothing in it refers to the client or its handlers but
weakly, so that a client which is dropped while connected can be collected; its session is then torn down.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from ..concurrency.abort import AbortController
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.lifecycle import fork_generation, register_for_exit, unregister_for_exit
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
from ..protocol.about import about_this_client
from ..protocol.dialects import load_payloads
from ..protocol.states import CloseInfo, TransportState
from ..transports.base import Inbound, Transport, TransportOptions
from .dispatcher import Dispatcher, forked_error
from .effects import Effects
from .ending import SessionEnd, SessionParts
from .function_calls import CALL_EVENTS, FunctionCalls
from .publisher import ClientState, EventPublisher

logger: logging.Logger = logging.getLogger(__name__)

# What else the silence of a bot may mean. (Seen: Pipecat 0.0.73 and 0.0.108.)
_SILENCE = {"action": " If the action has failed, see the bot's log, and connect anew: it may answer no further one."}

# The session that each transport serves, by the transport's identity: two clients must not share one. It keeps live
# sessions, which nothing else may hold strongly.
_sessions_of_transports: dict[int, Session] = {}


class Session:
    """One attempt to connect and the session that results.

    Args:
        transport: carries it; no other session may use it until `ending.closed` is set.
        dispatcher, states, media: of the client.
        deadline: limit of the attempt.
        replaces: called on the close thread when the session is lost; True if it is to be replaced. None: never.
        on_lost: called on the close thread last, if it is to be replaced.
        is_replacement: the attempt replaces a lost session, so what follows its failure is decided elsewhere.

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
        replaces: Callable[[CloseInfo], bool] | None = None,
        on_lost: Callable[[Session], object] | None = None,
        is_replacement: bool = False,
    ) -> None:
        self.transport = transport
        self.media = media
        self._on_lost = on_lost
        if _sessions_of_transports.setdefault(id(transport), self) is not self:
            raise InvalidTransportParamsError(
                f"The {transport.name} transport serves a session of another client; give each client its own"
            )
        try:
            self.runtime: Runtime = acquire_runtime()
            self._begin(dispatcher, states, deadline, replaces, is_replacement)
        except BaseException:
            _sessions_of_transports.pop(id(transport), None)
            if hasattr(self, "runtime"):
                self.runtime.release()
            raise

    def _begin(
        self,
        dispatcher: Dispatcher,
        states: ClientState,
        deadline: Deadline,
        replaces: Callable[[CloseInfo], bool] | None,
        is_replacement: bool,
    ) -> None:
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
        self.ending: SessionEnd = SessionEnd(
            SessionParts(
                transport=self.transport,
                media=self.media,
                publisher=self.publisher,
                runtime=self.runtime,
                pending=self._engine.pending,
                functions=self.functions,
                abort=self.abort,
            ),
            replaces=replaces,
            on_closed=self._release_transport,
            on_drained=self._drained,
            is_replacement=is_replacement,
        )
        self.abort.signal.on_abort(self._aborted)
        # Guards `_early_ready` and `ending.was_opened`: bot-ready may come before the transport is open. Any thread of
        # the package may hold it, for an assignment; re-entrant, because a finalizer may end the session during one.
        self._lock = threading.RLock()
        self._early_ready: protocol.Ready | None = None
        #: The transport knows of this session: what changes from now on, it must be told.
        self.introduced: bool = False
        # By thread: each counts its own messages, so that no sending thread holds a lock.
        self._sent: defaultdict[int, int] = defaultdict(int)
        self.messages_received: int = 0  # counted by the thread that delivers them: one at a time
        #: What the ready bot said about itself; None before.
        self.bot: BotReadyData | None = None
        register_for_exit(self)

    def own_options(self) -> dict[str, Any]:
        """Return the part of `TransportOptions` that is the session's own."""
        return {
            "client_ready": self._engine.client_ready,
            "on_interruption": self._interrupt,
            "on_closed": self.ending.begin,
            "on_event": self.publisher.event,
            "on_messages": self._receive_all,
            "_runtime": self.runtime,
            "check_wanted": self.check_wanted,
            "time_to_close": self.ending.time_to_close,
        }

    def initialize_transport(self, options: TransportOptions) -> None:
        """Tell the transport that it serves this session now. On the connect thread."""
        load_payloads()
        self.ending.closes_transport = True  # before the call: one that hangs has to be told of the end as well
        self.media.status_reporter.event_sink = self.publisher
        self.media.expect(self.runtime)
        self.check_wanted()  # else the end has come first, and does not come again
        transport, settings = self.transport, self.media.settings
        before = settings.mic, settings.cam
        transport.initialize(options, self._receive)
        self.introduced = True
        # What was switched before the transport knew of its session.
        if settings.mic is not before[0]:
            transport.enable_mic(settings.mic)
        if settings.cam is not before[1]:
            transport.enable_cam(settings.cam)

    # -- what callers ask: any thread ---------------------------------------------------------------------------------

    @property
    def in_other_process(self) -> bool:
        """True in a child process that was forked from the session's."""
        return self._generation != fork_generation()

    @property
    def lost_by_fork(self) -> bool:
        """True in a child process that was forked while the session was live."""
        return self.in_other_process and not self.ending.closed.is_set()

    @property
    def live(self) -> bool:
        """Tell whether the end has not begun; False in a forked child."""
        return not self.ending.has_begun and not self.in_other_process

    def check_ready(self) -> None:
        """Raise unless messages can be exchanged.

        Raises:
            ForkedProcessError, BotNotReadyError
        """
        if self.lost_by_fork:
            raise forked_error()
        if self.ending.has_begun:
            info, failed = self.ending.info, not self.publisher.was_ready
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
            raise self.ending.info.as_error() from None
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

    def check_wanted(self) -> None:
        """Raise if the attempt was given up: whoever is at work on it must not go on. On the connect thread."""
        self.abort.signal.raise_if_aborted()
        if self.ending.has_begun:  # the signal follows in a moment
            raise self.ending.info.as_error()

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
            self.ending.was_opened = True
            early, self._early_ready = self._early_ready, None
        if early is not None:
            self._become_ready(early)

    # -- what the transport delivers: one thread at a time ------------------------------------------------------------

    def _receive(self, message: Inbound) -> None:
        self._receive_all((message,))

    def _receive_all(self, messages: Iterable[Inbound]) -> None:
        """What came together. Its events are queued together, but before whatever they came before."""
        ending = self.ending
        receive, effects, estimated_size, clock = (
            self._engine.receive,
            self._effects,
            envelope.estimated_size,
            time.monotonic,
        )
        try:
            for message in messages:
                if ending.has_begun:
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
            self.ending.begin(CloseInfo(initiator="server", error=effect.error))
        else:
            self._effects.perform(effect)

    def _become_ready(self, effect: protocol.Ready) -> None:
        with self._lock:
            if not self.ending.was_opened:
                self._early_ready = effect
                return
        try:
            self.transport.start_media()
        except BaseException as error:  # noqa: BLE001 - a transport may be anybody's
            failure = TransportStartError(f"The {self.transport.name} transport could not start its media: {error}")
            failure.__cause__ = error
            self.ending.begin(CloseInfo(initiator="client", error=failure))
            return
        if self.move(TransportState.READY):
            self.publisher.event(RTVIEvent.BOT_READY, effect.data, effect.message)
            self.bot = effect.data
            self.ending.connect_done.set()

    def _interrupt(self) -> None:
        try:
            self.transport.interrupt_playback()
        except BaseException:
            logger.exception("The %s transport could not drop what the bot said", self.transport.name)

    # -- the end ------------------------------------------------------------------------------------------------------

    def at_exit(self, deadline: Deadline) -> None:
        """End the session on this thread, before `deadline`: the interpreter exits."""
        if not self.lost_by_fork:
            self.ending.at_exit(deadline)

    def _aborted(self) -> None:
        """End the attempt: the application has called `abort_controller.abort()`, or the end has."""
        if not self.publisher.was_ready:
            self.ending.begin(CloseInfo(initiator="client", error=self.abort.signal.reason))

    def _overflow(self) -> None:
        error = RTVIError(
            "Events arrive faster than the application handles them, and the queue is full; the session is ended. "
            "Handle them faster, subscribe to fewer, or raise max_queued_events / max_queued_bytes."
        )
        self.ending.begin(CloseInfo(initiator="client", error=error))

    def _release_transport(self) -> None:
        """Let another session have the transport, which is closed."""
        self.transport.state = self.publisher.state
        _sessions_of_transports.pop(id(self.transport), None)

    def _drained(self) -> None:
        """Let what follows begin: the end is complete."""
        unregister_for_exit(self)
        self.ending.drained.set()
        if self._on_lost is not None and self.publisher.was_ready and self.ending.is_replaced:
            self._on_lost(self)
