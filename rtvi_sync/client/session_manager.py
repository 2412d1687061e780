"""The sessions of a client: how they start and end, one at a time."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch, must_not_block
from ..concurrency.lifecycle import NoThreadError, register_for_fork, system_failures_as
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..concurrency.runtime import acquire_runtime
from ..concurrency.shield import shielded
from ..errors import (
    BotAlreadyStartedError,
    BotNotReadyError,
    DeviceError,
    InvalidTransportParamsError,
    RequestTimeoutError,
    RTVIError,
    TransportStartError,
)
from ..events import RTVIEvent
from ..media.media import Media
from ..messages import BotReadyData, RTVIClientConfigOption, RTVIMessage
from ..net.dial import Network
from ..protocol.dialects import load_payload
from ..protocol.states import CloseInfo, TransportState
from ..protocol.validation import from_mapping
from ..session.attempt import ConnectAttempt
from ..session.connect_request import ConnectRequest
from ..session.event_bus import EventBus, EventPublisher
from ..session.event_stream import forked_error
from ..session.params import APIRequest, RTVIClientParams, Seconds
from ..session.reconnect_policy import limit_attempt
from ..session.session import EndLimits, Session
from ..transports.base import Transport, TransportOptions
from .connect_call import ConnectCall, Connecting, Operation
from .options import RTVIClientOptions, connect_limit
from .sessionless import BotStart, Sessionless
from .ways import Way, params_for, video_first

if TYPE_CHECKING:
    from ..conversation.follow import ConversationTracker
    from ..session.http_action import HTTPAction
    from ..session.reconnect import Reconnector
    from .stats import ClientStats

logger: logging.Logger = package_logger(__name__)

_CLOSED = "This client is closed for good; make a new one"

# The events for which `wait_until_ready()` looks again. A session starts with any of them, so a stream of these events
# continues in the session that replaces a lost one. `bot_ready` is queued after the state has changed, so a stream that
# was opened before the change misses not both.
_READINESS = (
    RTVIEvent.TRANSPORT_STATE_CHANGED,
    RTVIEvent.BOT_READY,
    RTVIEvent.RECONNECTING,
    RTVIEvent.RECONNECT_FAILED,
)


class SessionManager:
    """Starts and ends the sessions of one client. Nothing in it refers to the client.

    Args:
        options, bus: The client's.
    """

    def __init__(self, options: RTVIClientOptions, bus: EventBus) -> None:
        given = {} if options.params is None else options.params
        self.params: RTVIClientParams = from_mapping(RTVIClientParams, given, "params")
        #: The ways to the bot, in the order in which they are tried; none without a transport.
        self.ways: tuple[Way, ...] = (Way(options.transport),) if options.transport is not None else ()
        self._way: Way | None = None  # that of the current session, or of the last one
        self.watch: SessionWatch = SessionWatch()
        self.media: Media = _media_of(options)
        self._options = options
        self._bus = bus
        self._conversation: ConversationTracker | None = None
        self._limit = connect_limit(options.timeout, options.connect_timeout)
        self._network = Network(ssl_context=options.ssl_context, proxy=options.proxy)
        # Guards `_beginning`, the start of a bot in `_sessionless`, and the state's owner: of two threads that begin
        # something at once only one does. Any thread may hold it, for an assignment; re-entrant, because a finalizer
        # may interrupt one.
        self._lock = threading.RLock()
        self._beginning = False
        self._closed = False
        self._session: Session | None = None
        self._under_way: list[Operation[Any]] = []  # the calls that connect or start a bot
        self._sessionless = Sessionless(
            bus,
            idle=self._idle,
            check_open=self._check_open,
            network=self._network,
            http_client=options.http_client,
        )
        self._reconnector: Reconnector | None = None
        if options.reconnect is not None:
            from ..session.reconnect import Reconnector

            self._reconnector = Reconnector(options.reconnect, self)
        self._last_start: tuple[Any, APIRequest | None] = (None, None)  # the arguments of the last connect()
        register_for_fork(self)

    def use(self, ways: tuple[Way, ...], headers: Mapping[str, str] | None) -> None:
        """Connect on `ways`, all to the bot at one URL, and send `headers` to the server that they ask.

        Raises:
            ValueError: `headers` would go to another server.
        """
        self.params = params_for(ways, self.params, headers)
        self.ways = ways

    # -- beginning ----------------------------------------------------------------------------------------------------

    def connecting(self, *, given: Any = None, start: APIRequest | None = None) -> Connecting:
        """Return a call of `RTVIClient.connect()`: it begins a session, and waits until its bot is ready."""
        return Connecting(self._under_way, partial(self._connect, given, start, Deadline(self._limit_of(start))))

    def _connect(self, given: Any, start: APIRequest | None, deadline: Deadline, call: Connecting) -> BotReadyData:
        attempt = partial(self._connect_once, given, start, deadline, call)
        try:
            self._check_process()
            self._check_open()
            if self._reconnector is None:
                return attempt()
            return self._reconnector.connect(attempt, deadline, call.stopped)
        except BaseException as error:
            if (session := call.last) is not None:
                session.explain_end(error)
                self._sessionless.post(self._bus.streams.give_up(session.close_info, session.number))
            raise

    def _connect_once(self, given: Any, start: APIRequest | None, deadline: Deadline, call: Connecting) -> BotReadyData:
        self._check_process()
        if not self.ways:
            raise InvalidTransportParamsError(
                "This client has no transport: pass RTVIClient(transport=WebSocketTransport())"
            )
        with system_failures_as(TransportStartError, "The code that a session needs could not be imported"):
            _import_for_session(reconnects=self._reconnector is not None)
        deadline = limit_attempt(self._options.reconnect, deadline)
        attempts = ConnectCall(self.ways, deadline)
        call.follow(attempts)

        def begin_and_run(attempt: ConnectAttempt, way: Way) -> BotReadyData:
            session = call.last = attempt.begin(lambda: self._begin_session(way, deadline, attempts))
            if self._reconnector is not None:
                self._reconnector.stop_for_connect(session)
            self._last_start = given, start
            return attempt.run(session, self._transport_options(session))

        try:
            return attempts.run(partial(self._attempt, given, start), begin_and_run)
        except BaseException:
            if attempts.was_followed:  # that session left its devices to one that may not have followed
                self.media.let_go()
            raise

    def starting(self, request: APIRequest) -> BotStart:
        """Return a call of `RTVIClient.start_bot()`: it makes only the request that starts a bot."""
        return BotStart(
            self._under_way,
            self._request(self._current_way, start=request),
            Deadline(self._limit_of(request)),
            start=self._start_bot,
            forget=self._sessionless.forget,
        )

    def _start_bot(self, start: BotStart) -> Any:
        self._check_process()
        before, reconnector, stopped = self._session, self._reconnector, []
        if before is not None:
            before.await_end(start.deadline)
        try:
            return self._sessionless.start_bot(
                start, lambda: stopped.append(reconnector.stop(self._session)) if reconnector else None
            )
        except BaseException:
            if before is not None and any(stopped):
                self.end_waiting_streams(before.close_info)
            raise

    def reconnect(self, stopped: Latch) -> Session:
        """Connect as the application did last, with a new request. See `Sessions`."""
        way = self._way
        assert way is not None, "there was a session"
        given, start = self._last_start
        deadline = limit_attempt(self._options.reconnect, Deadline(self._limit_of(start)))
        attempt = self._attempt(given, start, way, deadline, None)
        session = attempt.begin(lambda: self._begin_session(way, deadline))
        if self.watch.is_dropped:
            stopped.set()
        if stopped.is_set():  # by what did not find this session yet: `disconnect()`, or the finalizer of the client
            attempt.abandon()
        attempt.run(session, self._transport_options(session))
        return session

    def _attempt(
        self, given: Any, start: APIRequest | None, way: Way, deadline: Deadline, patience: float | None
    ) -> ConnectAttempt:
        request = self._request(way, given=given, start=start)
        return ConnectAttempt(request, deadline, self._options.request_timeout, patience)

    def publish(self, event: RTVIEvent, data: object) -> None:
        """Queue an event that belongs between two sessions. See `Sessions`."""
        self._sessionless.publish(event, data)

    def end_waiting_streams(self, info: CloseInfo, last: tuple[RTVIEvent, object] | None = None) -> None:
        """End the streams that wait for a session: none follows. See `Sessions`."""
        with contextlib.suppress(RTVIError):  # the application has connected meanwhile
            with self._idle():
                end = self._bus.streams.give_up(info)
                if last is not None:
                    self.publish(*last)
            self._sessionless.post(end)

    def _begin_session(self, way: Way, deadline: Deadline, call: ConnectCall | None = None) -> Session:
        """Start a session for `call`, or without a call the replacement of a lost session."""
        if self._session is not None:
            self._session.await_end(deadline)
        mine = False
        try:
            with self._idle():
                self._check_open()
                self._sessionless.check_no_start()
                mine = self._beginning = True
            reconnector = self._reconnector
            self._way = way
            session = Session(
                way.transport,
                self._bus,
                self.media,
                deadline,
                conversation=self.conversation,
                replaces=reconnector.replaces if reconnector is not None else None,
                on_lost=reconnector.lost if reconnector is not None else None,
                is_followed=partial(_is_followed, weakref.ref(call)) if call is not None else lambda _: True,
                keep_devices=self.media.take_back if call is not None and call.has_other_ways else None,
                in_connect=call is not None,
            )
            self._session = session
            self.watch.watch(session)
            self.media.hand_over()
        finally:
            if mine:
                with self._lock:
                    self._beginning = False
        if self._closed:  # by another thread, which did not find this session yet
            session.end_and_wait(CloseInfo(initiator="client"))
            raise RTVIError(_CLOSED)
        return session

    def _check_process(self) -> None:
        if self._session is not None and self._session.lost_by_fork:
            raise forked_error()

    def _check_open(self) -> None:
        if self._closed:
            raise RTVIError(_CLOSED)

    @contextlib.contextmanager
    def _idle(self) -> Iterator[None]:
        """Hold the lock in the block; raise before if there is a session."""
        with self._lock:
            self._check_process()
            session = self._session
            if self._beginning or (session is not None and not session.closed.is_set()):
                raise BotAlreadyStartedError(
                    f"A session is active (state {self._bus.state.value}); call disconnect() before you connect again"
                )
            yield

    def http_action(self, message: RTVIMessage) -> HTTPAction:
        """Return the request for an action without a session. See `RTVIClient.action()`."""
        return self._sessionless.http_action(message, self.params)

    # -- ending -------------------------------------------------------------------------------------------------------

    def ending(self, *, for_good: bool = False) -> Ending:
        """Return a call of `RTVIClient.disconnect()`, or, `for_good`, of `close()`."""
        return Ending(self, for_good=for_good)

    def _disconnect(self, session: Session | None, calls: list[Operation[Any]]) -> None:
        for call in calls:
            call.abandon()
            if isinstance(call, BotStart):
                if call.begun:
                    call.over.wait(Deadline(EndLimits.TEARDOWN))  # there is no session whose end takes time as well
            elif call.begun and call.session is None:
                call.over.wait(Deadline(EndLimits.STOP))  # its session, if it still makes one, ends at once
            session = call.session or session
        actions = self._sessionless.abandon_actions()
        reconnecting = None
        if self._reconnector is not None:
            reconnecting = self._reconnector.stop(session)
            current = self._session_here
            # The reconnector has just begun another one; what the application has begun since is not meant.
            if current is not session and current is not None and not current.in_connect:
                session = current
                reconnecting = self._reconnector.stop(session) or reconnecting
        if session is not None:
            session.end_and_wait(CloseInfo(initiator="client"))
        if reconnecting is not None or self._bus.streams.awaits_replacement:
            self.end_waiting_streams(CloseInfo(initiator="client"))
        if reconnecting is not None and not self._bus.queue.is_current:  # else in the handler of its last event
            reconnecting.join(Deadline(EndLimits.STOP))
        self._sessionless.join(actions)
        self._sessionless.forget_bot()
        self.media.let_go()

    @property
    def _session_here(self) -> Session | None:
        """The session, if it was started in this process."""
        session = self._session
        return None if session is not None and session.in_other_process else session

    def dismiss_bot(self) -> None:
        """Let the end of the session be no loss: the application requests the bot to leave."""
        session = self.session()
        session.check_ready()
        session.bot_dismissed = True

    # -- properties and internal --------------------------------------------------------------------------------------

    @property
    def transport(self) -> Transport | None:
        """The transport in use, or the one to try first; None without a transport."""
        return self._current_way.transport if self._current_way is not None else None

    @property
    def _current_way(self) -> Way | None:
        return self._way or next(iter(self.ways), None)

    @property
    def state(self) -> TransportState:
        """The state; in a forked child, whose parent has the session, `disconnected`."""
        session = self._session
        return TransportState.DISCONNECTED if session is not None and session.lost_by_fork else self._bus.state.value

    def session(self) -> Session:
        """Return the session, live or not.

        Raises:
            BotNotReadyError: there was none yet, or there will be none any more.
        """
        if self._closed:
            raise BotNotReadyError("There is no bot: this client was closed for good; make a new one")
        if self._session is None:
            raise BotNotReadyError("There is no bot: call connect() first")
        if self._reconnector is not None:
            self._reconnector.check_ready(self._session)
        return self._session

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
                    raise RequestTimeoutError(
                        f"The bot was not ready within {timeout} s; the client's state is {self.state.value}. Pass a "
                        "larger timeout, or look why there is no session: see the cause of this error, and the log"
                    ) from lack

    @property
    def last_session(self) -> Session | None:
        """The session that was started last, in any state."""
        return self._session

    @property
    def has_session(self) -> bool:
        """True if a session is active, under way, or about to be replaced.

        Raises:
            ForkedProcessError: it is the parent's.
        """
        self._check_process()
        session = self._session
        if self._beginning or (session is not None and not session.closed.is_set()):
            return True
        return session is not None and self._reconnector is not None and self._reconnector.is_to_replace(session)

    @property
    def conversation(self) -> ConversationTracker | None:
        """Follows the turns of the client's sessions; None with `track_turns=False`."""
        if self._conversation is None and self._options.track_turns:
            from ..conversation.follow import ConversationTracker  # here, because an unconnected client needs none

            with self._lock:
                if self._conversation is None:
                    self._conversation = ConversationTracker(max_turn_audio=self._options.max_turn_audio)
        return self._conversation

    @property
    def config(self) -> tuple[RTVIClientConfigOption, ...] | None:
        """The bot's config as last received, in this session or the last one."""
        return self._session.engine.config if self._session is not None else None

    def stats(self) -> ClientStats:
        """Return counters. See `RTVIClient.stats()`."""
        from .stats import stats_of

        return stats_of(self.transport, self.media, self._bus, self._session, self._reconnector)

    @system_failures_as(partial(DeviceError, devices=("mic", "speaker", "cam")), "The devices could not be opened")
    def init_devices(self) -> None:
        """Open the devices. See `RTVIClient.init_devices()`."""
        self._check_process()
        self._check_open()
        transport = self.transport_in_use()
        shielded(transport.init_devices if transport is not None else self._open_devices)
        try:
            self._check_open()
        except RTVIError:  # by another thread, which did not find these devices yet
            self.media.let_go()
            raise

    def _open_devices(self) -> None:
        """Open the devices without a session."""
        media, transport = self.media, self.transport
        if not media.is_held:
            runtime = acquire_runtime()
            publisher = EventPublisher(self._bus, runtime.workers, takes_states=False)
            media.hold(runtime)
            media.expect(runtime, publisher)
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

    def _transport_options(self, session: Session) -> TransportOptions:
        own, given = session.own_options(), self._options
        media, network, http_client = self.media, self._network, given.http_client
        return TransportOptions(media=media, network=network, http_client=http_client, text_only=given.text_only, **own)

    def prefer_video(self) -> bool:
        """Let the next `connect()` try the ways that carry video first; return False if there are none."""
        self.ways = video_first(self.ways)
        return any(way.transport.supports_video for way in self.ways)

    def transport_in_use(self) -> Transport | None:
        """Return the transport, while it serves a session."""
        session = self._session
        return session.transport if session is not None and session.live and session.introduced else None

    def _limit_of(self, start: APIRequest | None) -> Seconds | None:
        return start.timeout if start is not None and start.timeout is not None else self._limit

    def _request(self, way: Way | None, *, given: Any = None, start: APIRequest | None = None) -> ConnectRequest:
        options = self._options
        return ConnectRequest(
            params=lambda: self.params,
            given=given,
            started=self._sessionless.started,
            start=start,
            handler=options.custom_connect_handler,
            network=self._network,
            http_client=options.http_client,
            **(way.for_request() if way is not None else {}),
        )

    def after_fork_in_child(self) -> None:
        """Forget what is under way, which is the parent's."""
        self._lock = threading.RLock()
        self._beginning = False
        self._under_way.clear()
        self._sessionless.after_fork_in_child()
        session = self._session
        is_replaced = self._reconnector is not None and self._reconnector.after_fork_in_child(session)
        if session is not None and session.lost_by_fork:
            self._bus.streams.lose_session()
        elif session is not None and is_replaced:
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
    """One call of `disconnect()` or `close()`. It ends everything that was active when it was made, nothing later.

    Args:
        manager: The client's.
        for_good: No further session starts.
    """

    def __init__(self, manager: SessionManager, *, for_good: bool) -> None:
        if for_good:
            manager._closed = True  # before it looks, because no session may start behind it
        self._manager = manager
        self._for_good = for_good
        self._session = manager._session_here
        self._calls = [*manager._under_way]

    def run(self) -> None:
        """End it all, in bounded time."""
        manager, session = self._manager, self._session
        if manager._session is not None and manager._session.lost_by_fork:
            pass  # it is the parent's, with all that belongs to it
        elif session or self._calls or manager._sessionless.active or manager.media.is_held:
            if session is not None and must_not_block():  # the rest is done by another thread
                session.end(CloseInfo(initiator="client"))
            if manager._bus.queue.is_current:  # then it waits for less, and depends on the calling thread
                self._end()
            else:
                with contextlib.suppress(TimeoutError):
                    shielded(self._end, limit=EndLimits.TEARDOWN + EndLimits.STOP)
        if self._for_good:
            manager._bus.streams.end_for_good(CloseInfo(initiator="client"))

    def insist(self) -> None:
        """Let all be ended though an interrupt has ended `run()`, wherever that was. On return the state tells of the
        end.
        """
        manager = self._manager
        if self._for_good:
            manager._bus.streams.end_for_good(CloseInfo(initiator="client"))
        if manager._session is not None and manager._session.lost_by_fork:
            return
        with contextlib.suppress(TimeoutError):
            shielded(self._begin, limit=EndLimits.STOP)
        with contextlib.suppress(NoThreadError):  # what has begun ends without it
            PoolTask("call", self._end).start()

    def _begin(self) -> None:
        for call in self._calls:
            call.abandon()
        if self._session is not None:
            self._session.end(CloseInfo(initiator="client"))
            self._session.announced.wait(Deadline(EndLimits.STOP))

    def _end(self) -> None:
        self._manager._disconnect(self._session, self._calls)


class SessionWatch:
    """The session, as the finalizer of a client knows it.

    The reference is weak: the error that ended a session refers to the client, by its traceback, so a finalizer with a
    strong reference would keep the client forever. The registry of sessions keeps a live session.
    """

    def __init__(self) -> None:
        self._session: weakref.ref[Session] | None = None
        #: The client was collected.
        self.is_dropped: bool = False

    def watch(self, session: Session) -> None:
        """Store the client's current session."""
        self._session = weakref.ref(session)

    def collected(self) -> None:
        """End the session, if it is live: the client was collected."""
        self.is_dropped = True  # first: a session that starts now looks for it
        session = self._session() if self._session is not None else None
        if session is None or not session.live:
            return
        # A finalizer may run anywhere, even under a lock, so it only gives the I/O thread a call to run.
        session.runtime.io.call(lambda: session.end(CloseInfo(initiator="client")))
        warnings.warn(
            "An RTVIClient was dropped while connected; its session is ended. "
            "Call disconnect(), or use `with client:`.",
            ResourceWarning,
            stacklevel=2,
        )


@functools.cache
def _import_for_session(*, reconnects: bool) -> None:
    """Import what calls in a session need: later the process may have no descriptor left to do so."""
    # By name, because these modules import this one.
    for module in ("client.stats", "conversation.ask", "conversation.expect"):
        importlib.import_module(f"rtvi_sync.{module}")
    if reconnects:
        import tenacity  # noqa: F401
    for event in RTVIEvent:
        load_payload(event)


def _is_followed(call: weakref.ref[ConnectCall], info: CloseInfo) -> bool:
    """Whether another attempt follows one of `call` that has failed."""
    alive = call()
    return alive is not None and alive.is_followed(info.failure())
