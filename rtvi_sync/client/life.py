"""A client's life: the call that holds the client, its session, and the next one."""

from __future__ import annotations

import contextlib
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..concurrency.deadline import Deadline
from ..concurrency.latch import must_not_block
from ..concurrency.lifecycle import NoThreadError, register_for_fork, system_failures_as
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..concurrency.runtime import acquire_runtime
from ..concurrency.shield import shielded
from ..errors import (
    BotAlreadyStartedError,
    BotNotReadyError,
    DeviceError,
    RequestTimeoutError,
    RTVIError,
    fresh_copy,
)
from ..events import RTVIEvent
from ..media.media import Media
from ..messages import RTVIClientConfigOption, RTVIMessage
from ..net.dial import Network
from ..protocol.engine import Engine, about_this_client
from ..protocol.states import BY_CLIENT, CloseInfo, TransportState
from ..protocol.validation import from_mapping
from ..session.connect_request import Bundle, ConnectRequest
from ..session.event_bus import EventBus, EventPublisher
from ..session.event_stream import forked_error
from ..session.params import APIRequest, RTVIClientParams, Seconds
from ..session.reconnect_policy import ReconnectFailedData, ReconnectingData, ReconnectPolicy
from ..session.session import EndLimits, Phase, Session
from ..transports.base import Transport, TransportOptions
from .candidates import Candidate, params_for, video_first
from .connect_steps import Connect
from .operation import Operation, Progress
from .options import RTVIClientOptions, connect_limit
from .start_bot import StartBot

if TYPE_CHECKING:
    from ..conversation.follow import ConversationTracker
    from ..session.http_action import HTTPAction
    from .reconnect import Reconnect
    from .recorder import Recorder
    from .stats import ClientStats

logger: logging.Logger = package_logger(__name__)


class State(Enum):
    """Where a client is."""

    IDLE = "idle"
    STARTING = "starting"  # `start_bot()` waits for the server
    CONNECTING = "connecting"  # an attempt, or the time between two candidates of a `connect()`
    READY = "ready"
    ENDING = "ending"
    WAITING = "waiting"  # a lost session is replaced after a delay
    CLOSED = "closed"  # for good


#: The transitions between states, and their causes. `Life.hold()` enforces them for a call that starts something.
FOLLOWING: Final[Mapping[State, Mapping[State, str]]] = {
    State.IDLE: {
        State.STARTING: "start_bot()",
        State.CONNECTING: "connect()",
        State.CLOSED: "close()",
    },
    State.STARTING: {
        State.IDLE: "the answer, a failure, disconnect() or an interrupt",
        State.CLOSED: "close()",
    },
    State.CONNECTING: {
        State.READY: "bot-ready",
        State.ENDING: "a failure, a limit, disconnect() or an interrupt",
        State.IDLE: "no session could be made",
        State.CLOSED: "close()",
    },
    State.READY: {
        State.ENDING: "disconnect(), the bot, the network, an error, exit or collection",
    },
    State.ENDING: {
        State.IDLE: "nothing follows",
        State.WAITING: "the policy replaces the session",
        State.CONNECTING: "another candidate follows",
        State.CLOSED: "close()",
    },
    State.WAITING: {
        State.CONNECTING: "the next attempt, or connect()",
        State.STARTING: "start_bot()",
        State.IDLE: "disconnect(), or no attempt is left",
        State.CLOSED: "close()",
    },
    State.CLOSED: {},
}

_CLOSED = "This client is closed for good; make a new one"
_WAIT = "call wait_until_ready() before you try again"

# The events after which `wait_until_ready()` checks again. A session starts with any of them, so a stream of them
# continues in the session that replaces a lost one. `bot_ready` is queued after the state has changed, so a stream that
# was opened before the change cannot miss both.
_READINESS = (
    RTVIEvent.TRANSPORT_STATE_CHANGED,
    RTVIEvent.BOT_READY,
    RTVIEvent.RECONNECTING,
    RTVIEvent.RECONNECT_FAILED,
)


class Life:
    """The owner of a client's life. Nothing in it refers to the client.

    Rule 1: one operation holds the client at a time (`_holder`). Only the holder makes a session, and a session belongs
    to the operation that made it. Only `hold()`, `settle()` and `release()` change the holder, under `_lock`.
    Rule 2: an operation exists before it is submitted, and its `cancel()` is right at every instant.
    Rule 3: a caller waits only for its own operation, inside one `try`. Anything that interrupts the wait cancels the
    operation.

    Args:
        options: The client's options.
        bus: The client's event bus.
    """

    def __init__(self, options: RTVIClientOptions, bus: EventBus) -> None:
        given = {} if options.params is None else options.params
        self.params: RTVIClientParams = from_mapping(RTVIClientParams, given, "params")
        #: In the order in which they are tried. Empty without a transport.
        self.candidates: tuple[Candidate, ...] = (Candidate(options.transport),) if options.transport else ()
        self.policy: ReconnectPolicy | None = options.reconnect
        self.request_timeout: Seconds | None = options.request_timeout
        self.media: Media = _media_of(options)
        self._options = options
        self._bus = bus
        self._conversation: ConversationTracker | None = None
        self._limit = connect_limit(options.timeout, options.connect_timeout)
        self._network = Network(ssl_context=options.ssl_context, proxy=options.proxy)
        # Guards `_holder` and `failed`, and orders the events between two sessions with respect to changes of the
        # holder. Any thread may hold it, to assign or to queue an event. Re-entrant, because a finalizer may interrupt
        # such a thread.
        self._lock: threading.RLock = new_lock()
        self._holder: Operation[Any] | None = None
        self._closed = False
        self._actions: list[HTTPAction] = []
        #: The running operations, in the order in which they were submitted.
        self.operations: list[Operation[Any]] = []
        #: The session that was started last, in any state.
        self.last_session: Session | None = None
        #: The last result of `start_bot()`.
        self.started: Bundle | None = None
        #: Why the last lost session was not replaced. None if it was, or if the application has connected since.
        self.failed: ReconnectFailedData | None = None
        #: Of the client's recordings. None before the first one.
        self.recorder: Recorder | None = None
        #: The number of replaced sessions.
        self.reconnects: int = 0
        self.watch: Watch = Watch()
        register_for_fork(self)

    def use(self, candidates: tuple[Candidate, ...], headers: Mapping[str, str] | None) -> None:
        """Try `candidates`, all for the bot at one URL, and send `headers` to the server that they ask.

        Raises:
            ValueError: `headers` would go to another server.
        """
        self.params = params_for(candidates, self.params, headers)
        self.candidates = candidates

    # -- the state, and who holds the client --------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state, which follows from the session and the holder."""
        session, holder = self.last_session, self._holder
        if session is not None and not session.is_closed and not session.in_other_process:
            if session.is_ending:
                return State.ENDING
            return State.READY if session.was_ready else State.CONNECTING
        if holder is not None:
            return _state_of(holder)
        return State.CLOSED if self._closed else State.IDLE

    def hold(self, operation: Operation[Any], deadline: Deadline) -> Operation[Any] | None:
        """Let `operation` hold the client, once a session that is ending is closed.

        Returns:
            The displaced operation: a reconnect that waits. Or None.

        Raises:
            BotAlreadyStartedError: The operation's state may not follow.
            DisconnectedError: The operation was abandoned.
            RTVIError: The client is closed for good, or the session is the parent's.
        """
        if self.last_session is not None:
            self.last_session.await_end(deadline)
        with self._lock:
            operation.check_wanted()
            if self._closed:
                operation.stop()  # as `close()` is about to do; its caller waits for no report of this one
            self.check_usable()
            self.check_no_session()
            holder = self._holder
            if holder is operation:
                return None
            if _state_of(operation) not in FOLLOWING[self.state]:
                call = "start_bot" if self.state is State.STARTING else "connect"
                raise BotAlreadyStartedError(
                    f"{call}() is under way; wait until it returns, or call disconnect() to end it, before you connect "
                    "or start another bot"
                )
            self._let_hold(operation)
            if holder is not None:
                holder.stop()
            return holder

    def settle(self, session: Session, operation: Operation[Any], *, wanted: bool) -> bool:
        """Let the operation that makes the session after `session` hold the client, if another session is wanted.

        On the close thread, once for each session.

        Args:
            session: Made by `operation`.
            operation: Decides whether another session follows.
            wanted: True if another session should follow.

        Returns:
            Whether another one follows.
        """
        with self._lock:
            if self._holder is not operation:
                return False
            follows = wanted and not (session.nothing_follows or operation.abandoned or self._closed)
            successor = operation.next_after(self, session) if follows else None
            if successor is not None and successor not in self.operations:
                self.operations.append(successor)
            self._let_hold(successor)
            return follows

    def release(self, operation: Operation[Any]) -> None:
        """If `operation`, which has failed, holds the client, let nothing hold it."""
        with self._lock:
            if self._holder is operation:
                self._let_hold(None)

    def finish(self, reconnect: Reconnect, session: Session) -> bool:
        """End `reconnect` unless its `session` was lost in the meantime. Return whether it has ended."""
        with self._lock:
            reconnect.finish(session)
            return reconnect.progress is Progress.DONE

    def _let_hold(self, operation: Operation[Any] | None) -> None:
        self._holder = operation
        self.watch.operation = weakref.ref(operation) if operation is not None else None

    def session_drained(self, session: Session) -> None:
        """Start the replacement of `session`. On its close thread, last."""
        for operation in [*self.operations]:
            if operation.lost is session and operation.progress is Progress.NEW:
                operation.start()

    # -- starting operations ------------------------------------------------------------------------------------------

    def connecting(self, *, given: Any = None, start: APIRequest | None = None) -> Connect:
        """Return a call of `RTVIClient.connect()`. It starts a session, and waits until its bot is ready."""
        return Connect(self, given, start, Deadline(self.limit_of(start)))

    def starting(self, request: APIRequest) -> StartBot:
        """Return a call of `RTVIClient.start_bot()`. It only makes the request that starts a bot."""
        candidate = next((each for each in self.candidates if each.transport is self.transport), None)
        return StartBot(self, self.request_for(candidate, start=request), Deadline(self.limit_of(request)))

    def make_session(self, operation: Operation[Any], transport: Transport, deadline: Deadline, **how: bool) -> Session:
        """Make a session of `operation`, which holds the client from now on.

        Args:
            operation: Makes the session.
            transport: Carries the session.
            deadline: Limit of the attempt.
            how: Options of `Session`.

        Raises:
            RTVIError: As `hold()`, or the session could not be made.
        """
        displaced = self.hold(operation, deadline)
        try:
            session = Session(
                transport, self._bus, self.media, deadline, conversation=self.conversation, owner=operation, **how
            )
        except BaseException:
            if displaced is not None and self.last_session is not None:
                self.end_waiting_streams(self.last_session.close_info)
            raise
        operation.session = self.last_session = session
        session.recorder = self.recorder  # after it: `record()` makes the one, then looks for the other
        self.failed = None
        return session

    def request_for(
        self, candidate: Candidate | None, *, given: Any = None, start: APIRequest | None = None
    ) -> ConnectRequest:
        """Return the request for the transport's parameters."""
        options = self._options
        return ConnectRequest(
            params=lambda: self.params,
            given=given,
            started=self.started,
            start=start,
            handler=options.custom_connect_handler,
            network=self._network,
            http_client=options.http_client,
            **(candidate.for_request() if candidate is not None else {}),
        )

    def transport_options(self, session: Session) -> TransportOptions:
        """Return the options for the transport of `session`."""
        own, given = session.own_options(), self._options
        media, network, http_client = self.media, self._network, given.http_client
        return TransportOptions(media=media, network=network, http_client=http_client, text_only=given.text_only, **own)

    @property
    def is_text_only(self) -> bool:
        """Return whether the application has chosen to have no audio."""
        return self._options.text_only

    def limit_of(self, start: APIRequest | None) -> Seconds | None:
        """Return the limit of a call, in seconds."""
        return start.timeout if start is not None and start.timeout is not None else self._limit

    def check_usable(self) -> None:
        """Raise if the client is closed for good, or its session is the parent's."""
        self.check_process()
        if self._closed:
            raise RTVIError(_CLOSED)

    def check_process(self) -> None:
        """Raise `ForkedProcessError` if the session is the parent's."""
        if self.last_session is not None and self.last_session.lost_by_fork:
            raise forked_error()

    def check_no_session(self) -> None:
        """Raise `BotAlreadyStartedError` if there is a session that is not closed."""
        session = self.last_session
        if session is not None and not session.is_closed:
            raise BotAlreadyStartedError(
                f"A session is active (state {self._bus.state.value}); call disconnect() before you connect again"
            )

    # -- after a session ----------------------------------------------------------------------------------------------

    def announce(self, reconnect: Operation[None], data: ReconnectingData) -> bool:
        """Queue the event before an attempt. Return False if `reconnect` was stopped."""
        with self._lock:
            if self._holder is not reconnect or reconnect.abandoned:
                return False
            self.publish(RTVIEvent.RECONNECTING, data)
            return True

    def report_failure(self, reconnect: Operation[None], data: ReconnectFailedData) -> bool:
        """Queue the event that no attempt follows, and end the streams that wait for a session.

        A stream that the event's handler opens waits for the session that the application starts.

        Returns:
            False if `reconnect` was stopped before, because the state then belongs to another operation.
        """
        with self._lock:
            if self._holder is not reconnect or reconnect.abandoned:
                return False
            self.failed = data
            last = RTVIEvent.RECONNECT_FAILED, data
            self.end_waiting_streams(CloseInfo(initiator="network", error=data.error), last)
            self._let_hold(None)
            return True

    def end_waiting_streams(self, info: CloseInfo, last: tuple[RTVIEvent, object] | None = None) -> None:
        """End the streams that wait for a session now, after the queued events, because none follows.

        Args:
            info: How the last session ended.
            last: An event to queue before.
        """
        with contextlib.suppress(RTVIError):  # the application has connected in the meantime
            with self._lock:
                self.check_process()
                self.check_no_session()
                end = self._bus.streams.give_up(info)
                if last is not None:
                    self.publish(*last)
            self._post(end)

    def end_streams_after(self, session: Session) -> None:
        """End the streams that wait for a session after `session`, unless one has started since."""
        self._post(self._bus.streams.give_up(session.close_info, session.number))

    # -- events and requests without a session ------------------------------------------------------------------------

    def publish(self, event: RTVIEvent, data: object) -> None:
        """Queue an event that belongs between two sessions. Do nothing if a session has started since."""
        with contextlib.suppress(RTVIError, OSError), self.publisher() as publisher:
            publisher.event(event, data)

    def _post(self, item: Callable[[], None]) -> None:
        """Queue an item behind the queued events."""
        with contextlib.suppress(RTVIError, OSError):
            runtime = acquire_runtime()
            self._bus.queue.post(item, runtime.workers, force=True)
            runtime.release()

    @contextlib.contextmanager
    def publisher(
        self, *, takes_states: bool = False, on_overflow: Callable[[], object] = lambda: None
    ) -> Iterator[EventPublisher]:
        """Yield a publisher of events without a session.

        Args:
            takes_states: True: it also changes the state.
            on_overflow: Called when an event finds the queue full.

        Raises:
            RTVIError: There is a session, or the client is closed.
        """
        runtime = acquire_runtime()
        try:
            with self._lock:
                self.check_process()
                self.check_no_session()
                if not takes_states:
                    self.check_usable()
                publisher = EventPublisher(
                    self._bus, runtime.workers, on_overflow=on_overflow, takes_states=takes_states
                )
            yield publisher
        finally:
            runtime.release()

    def http_action(self, message: RTVIMessage) -> HTTPAction:
        """Return the request for an action without a session. See `RTVIClient.action()`."""
        from ..session.http_action import HTTPAction  # imports HTTP, which most sessions do not need

        return HTTPAction(
            message,
            self.params,
            engine=Engine(about_this_client(), awaits_ready=False),
            network=self._network,
            http_client=self._options.http_client,
            publishing=self._publishing,
        )

    @contextlib.contextmanager
    def _publishing(self, action: HTTPAction) -> Iterator[EventPublisher]:
        self._actions.append(action)
        try:
            with self.publisher(on_overflow=action.overflow) as publisher:
                yield publisher
        finally:
            with contextlib.suppress(ValueError):
                self._actions.remove(action)

    def forget_bot(self) -> None:
        """Leave the state `authenticated`: no call connects to the bot that `start_bot()` has started."""
        if self._bus.state.value is not TransportState.AUTHENTICATED:
            return
        try:
            with self.publisher(takes_states=True) as publisher:
                publisher.move(TransportState.DISCONNECTED)
        except BotAlreadyStartedError:
            pass  # another thread has started a session since
        except (NoThreadError, OSError):
            logger.warning("No event reports that the state is `disconnected` now", exc_info=True)
            self._bus.state.value = TransportState.DISCONNECTED

    # -- ending -------------------------------------------------------------------------------------------------------

    def ending(self, *, for_good: bool = False) -> Ending:
        """Return a call of `RTVIClient.disconnect()`, or, `for_good`, of `close()`."""
        return Ending(self, for_good=for_good)

    def _disconnect(self, session: Session | None, operations: list[Operation[Any]]) -> None:
        # 1. The running calls. Their sessions end at once, including sessions that are being made.
        for operation in operations:
            operation.abandon()
            if isinstance(operation, StartBot):
                operation.wait_over(Deadline(EndLimits.TEARDOWN))  # without a session whose end takes time as well
            elif operation.session is None and operation.lost is None:
                operation.wait_over(Deadline(EndLimits.STOP))
            # Only the newest may be live: a call whose session has ended may still be in code of the application.
            made = operation.session
            if made is not None and (session is None or session.number < made.number):
                session = made
        actions = [*self._actions]
        for action in actions:
            action.abandon()
        # 2. The session, and its replacement.
        reconnects = [operation for operation in operations if operation.lost is not None]
        if session is not None:
            reconnects += self._let_nothing_follow(session)
            session.end_and_wait(BY_CLIENT)
        self._stop(reconnects)
        # 3. The rest.
        deadline = Deadline(EndLimits.LINGER)
        for action in actions:
            action.join(deadline)
        self.forget_bot()
        self.media.let_go()

    def undo(self, call: Operation[Any], deadline: Deadline) -> None:
        """End the session of `call`, or its replacement, until `deadline`, because the call raises."""
        with self._lock:
            holder = self._holder
            replacing = holder if holder is not None and holder.source is call else None
            if replacing is not None:
                replacing.stop()
        session = (replacing.session if replacing is not None else None) or call.session
        if session is not None:
            session.end(BY_CLIENT)
            session.wait_closed(deadline)
            session.wait_drained(Deadline(deadline.at_most(EndLimits.LINGER)))
        if replacing is not None:
            self._stop([replacing])

    def _let_nothing_follow(self, session: Session) -> list[Operation[Any]]:
        """Let no session replace `session`. Return the operation that was going to."""
        with self._lock:
            session.nothing_follows = True
            holder = self._holder
            if holder is None or holder.lost is not session:
                return []
            holder.stop()
            return [holder]

    def _stop(self, reconnects: list[Operation[Any]]) -> None:
        """End the operations that wait for a session, and wait for the threads of stopped operations."""
        for operation in reconnects:
            self.release(operation)
        if reconnects or self._bus.streams.awaits_replacement:
            self.end_waiting_streams(BY_CLIENT)
        if not self._bus.queue.is_current:  # else this is the handler of the last event
            for operation in reconnects:
                operation.join(Deadline(EndLimits.STOP))

    @property
    def _session_here(self) -> Session | None:
        """The session, if it was started in this process."""
        session = self.last_session
        return None if session is not None and session.in_other_process else session

    def dismiss_bot(self) -> None:
        """Let no session follow the current one, because the application requests the bot to leave."""
        session = self.session()
        session.check_ready()
        session.nothing_follows = True

    # -- properties and internal --------------------------------------------------------------------------------------

    @property
    def transport(self) -> Transport | None:
        """The transport in use, or the one to try first. None without a transport."""
        if self.last_session is not None:
            return self.last_session.transport
        return self.candidates[0].transport if self.candidates else None

    @property
    def transport_state(self) -> TransportState:
        """The state as the application sees it. In a forked child, whose parent has the session, `disconnected`."""
        session = self.last_session
        return TransportState.DISCONNECTED if session is not None and session.lost_by_fork else self._bus.state.value

    def session(self) -> Session:
        """Return the session, live or not.

        Raises:
            BotNotReadyError: There was no session yet, there will be none any more, or it is being replaced or could
                not be.
        """
        if self._closed:
            raise BotNotReadyError("There is no bot: this client was closed for good; make a new one")
        session = self.last_session
        if session is None:
            raise BotNotReadyError("There is no bot: call connect() first")
        if self.policy is not None:
            self._explain_replacement(session)
        return session

    def _explain_replacement(self, session: Session) -> None:
        """Raise if the last session has no bot because it is being replaced, or could not be."""
        has_ended, holder, failed = session.is_ending, self._holder, self.failed
        if session.was_ready and not has_ended:
            return
        repeated = next((each.pending for each in self.operations if each.lost is None and each.pending), None)
        if repeated is not None:
            raise BotNotReadyError(
                f"There is no bot yet: connect() makes {repeated.describe_attempt()}; {_WAIT}"
            ) from fresh_copy(repeated.error)
        pending = holder.pending if holder is not None else None
        if pending is not None:
            raise BotNotReadyError(f"There is no bot: {pending.describe()}; {_WAIT}") from fresh_copy(pending.error)
        if failed is not None and has_ended:
            raise BotNotReadyError(
                f"There is no bot: {failed.describe()}; call connect() for a new session"
            ) from fresh_copy(failed.error)
        is_replaced = holder is not None and holder.lost is session  # and the first attempt is not planned yet
        is_undecided = session.is_lost and session.was_ready and self._bus.state.value is TransportState.DISCONNECTING
        if is_replaced or is_undecided:
            from .reconnect import loss_of

            loss, follows = loss_of(session), "reconnects" if is_replaced else "may reconnect"
            raise BotNotReadyError(f"There is no bot: {loss}; the client {follows} by itself; {_WAIT}") from loss

    def wait_until_ready(self, timeout: float | None) -> None:
        """Wait until messages can be exchanged with the bot. See `RTVIClient.wait_until_ready()`."""
        deadline = Deadline(timeout)
        with self._bus.streams.add(_READINESS, None) as stream:
            ended = stream.after is not None and not stream.after.reconnecting
            while True:
                try:
                    return self.session().check_ready()
                except BotNotReadyError as error:
                    if ended:
                        raise
                    lack = error
                try:
                    ended = stream.next_before(deadline) is None
                except RequestTimeoutError:
                    state = self.transport_state.value
                    raise RequestTimeoutError(
                        f"The bot was not ready within {timeout} s; the client's state is {state}. Pass a "
                        "larger timeout, or find out why there is no session: see this error's cause, and the log"
                    ) from lack

    @property
    def has_session(self) -> bool:
        """True if a session is active, being connected, or about to be replaced.

        Raises:
            ForkedProcessError: The session is the parent's.
        """
        self.check_process()
        return self.state not in (State.IDLE, State.STARTING, State.CLOSED)

    @property
    def conversation(self) -> ConversationTracker | None:
        """The tracker of the turns of the client's sessions. None with `track_turns=False`."""
        if self._conversation is None and self._options.track_turns:
            from ..conversation.follow import ConversationTracker  # here, because an unconnected client needs none

            with self._lock:
                if self._conversation is None:
                    self._conversation = ConversationTracker(max_turn_audio=self._options.max_turn_audio)
        return self._conversation

    @property
    def config(self) -> tuple[RTVIClientConfigOption, ...] | None:
        """The bot's config as last received, in this session or the last one."""
        return self.last_session.engine.config if self.last_session is not None else None

    def stats(self) -> ClientStats:
        """Return counters. See `RTVIClient.stats()`."""
        from .stats import stats_of

        return stats_of(self.transport, self.media, self._bus, self.last_session, self.reconnects)

    @system_failures_as(partial(DeviceError, devices=("mic", "speaker", "cam")), "The devices could not be opened")
    def init_devices(self) -> None:
        """Open the devices. See `RTVIClient.init_devices()`."""
        self.check_usable()
        transport = self.transport_in_use()
        shielded(transport.init_devices if transport is not None else self._open_devices)
        try:
            self.check_usable()
        except RTVIError:  # by another thread, which did not find these devices yet
            self.media.let_go()
            raise

    def _open_devices(self) -> None:
        """Open the devices without a session."""
        media, transport = self.media, self.transport
        runtime = acquire_runtime()
        media.hold(runtime, EventPublisher(self._bus, runtime.workers, takes_states=False))
        try:
            media.prepare(
                audio=transport is None or transport.supports_audio,
                video=transport is not None and transport.supports_video,
                is_continuous=transport is not None and transport.audio_is_continuous,
            )
            media.watch_devices()
        except BaseException:
            media.let_go()
            raise

    def prefer_video(self) -> bool:
        """Let the next `connect()` try the candidates that carry video first. Return False if there are none."""
        self.candidates = video_first(self.candidates)
        return any(candidate.transport.supports_video for candidate in self.candidates)

    def transport_in_use(self) -> Transport | None:
        """Return the transport, while it serves a session."""
        session = self.last_session
        return session.transport if session is not None and session.live and session.introduced else None

    def after_fork_in_child(self) -> None:
        """Forget the operations and sessions, which are the parent's."""
        self._lock = new_lock()
        holder, session = self._holder, self.last_session
        self._let_hold(None)
        self.operations.clear()
        self._actions.clear()
        if isinstance(holder, StartBot):
            self._bus.state.value = TransportState.DISCONNECTED
        if session is not None and session.lost_by_fork:
            self._bus.streams.lose_session()
        elif session is not None and holder is not None and holder.lost is not None and not self._bus.streams.gave_up:
            self._bus.streams.give_up(session.close_info)()  # the parent replaces it


def _media_of(options: RTVIClientOptions) -> Media:
    """Return the devices that the options name."""
    enable_cam = bool(options.enable_cam or options.enable_camera)
    if enable_cam and not (options.transport is not None and options.transport.supports_video):
        enable_cam = False
        logger.warning("enable_cam has no effect: the transport carries no video, as SmallWebRTCTransport does")
    return Media(
        mic=options.mic,
        speaker=options.speaker,
        cam=options.cam,
        enable_mic=options.enable_mic,
        enable_cam=enable_cam,
        backend=options.audio_backend,
        max_queued_audio_bytes=options.max_queued_audio_bytes,
        echo_cancellation=options.echo_cancellation,
    )


class Ending:
    """One call of `disconnect()` or `close()`. It ends everything that was active when it was made, and nothing later.

    Args:
        life: The client's life.
        for_good: True: no further session starts.
    """

    def __init__(self, life: Life, *, for_good: bool) -> None:
        if for_good:
            life._closed = True  # before the sessions are read: none may start after that
        self._life = life
        self._for_good = for_good
        self._session = life._session_here
        self._operations = [*life.operations]

    def run(self) -> None:
        """End everything, in bounded time."""
        life, session = self._life, self._session
        started = life._bus.state.value is TransportState.AUTHENTICATED
        if life.last_session is not None and life.last_session.lost_by_fork:
            pass  # the session, and all that belongs to it, is the parent's
        elif session or self._operations or life._actions or started or life.media.is_held:
            if session is not None and must_not_block():  # another thread does the rest
                session.end(BY_CLIENT)
            if life._bus.queue.is_current:  # then it waits for less, and depends on the calling thread
                self._end()
            else:
                with contextlib.suppress(TimeoutError):
                    shielded(self._end, limit=EndLimits.TEARDOWN + EndLimits.STOP)
        if self._for_good:
            life._bus.streams.end_for_good(BY_CLIENT)
            if life.recorder is not None:
                life.recorder.close()

    def insist(self) -> None:
        """Let everything end although an interrupt has ended `run()`, at any point. On return the state is as after the
        end.
        """
        life = self._life
        if self._for_good:
            life._bus.streams.end_for_good(BY_CLIENT)
            if life.recorder is not None:
                life.recorder.end()
        if life.last_session is not None and life.last_session.lost_by_fork:
            return
        with contextlib.suppress(TimeoutError):
            shielded(self._begin, limit=EndLimits.STOP)
        with contextlib.suppress(NoThreadError):  # the ends that have started need no such thread
            PoolTask("call", self._end).start()

    def _begin(self) -> None:
        for operation in self._operations:
            operation.abandon()
        if self._session is not None:
            self._session.end(BY_CLIENT)
            self._session.wait_for(Phase.ANNOUNCED, Deadline(EndLimits.STOP))

    def _end(self) -> None:
        self._life._disconnect(self._session, self._operations)


class Watch:
    """The operation that holds a client, as the finalizer of the client knows it.

    The reference is weak. The error that ended a session refers to the client, by its traceback, so a finalizer with a
    strong reference would keep the client forever. The registry of sessions keeps a live session, and a reconnect's
    thread keeps the reconnect.
    """

    def __init__(self) -> None:
        self.operation: weakref.ref[Operation[Any]] | None = None

    def collected(self) -> None:
        """End the session if it is live, and let nothing follow it, because the client was collected."""
        operation = self.operation() if self.operation is not None else None
        if operation is None:
            return
        operation.stop()
        session = operation.session
        if session is None or not session.live:
            return
        # A finalizer may run anywhere, even under a lock, so it only gives the I/O thread a call to run.
        session.runtime.io.call(lambda: session.end(BY_CLIENT))
        warnings.warn(
            "An RTVIClient was dropped while connected; its session is ended. "
            "Call disconnect(), or use `with client:`.",
            ResourceWarning,
            stacklevel=2,
        )


def _state_of(holder: Operation[Any]) -> State:
    """Return the state of a client without a session that `holder` holds."""
    if isinstance(holder, StartBot):
        return State.STARTING
    return State.CONNECTING if holder.lost is None else State.WAITING
