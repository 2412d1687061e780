"""The client: a blocking facade. What it does is done by `connect`, `session` and `dispatch`."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar, overload

import attrs
import httpx

from ._version import __version__
from .concurrency.cancel import AbortController
from .concurrency.deadline import Deadline
from .concurrency.hub import acquire_hub
from .concurrency.lanes import LaneWorkers
from .concurrency.lifecycle import register_for_fork
from .connect import ConnectAttempt, ConnectHandler, ConnectRequest, start_bot
from .dispatch import Dispatcher, EventStream, wait_for
from .errors import (
    BotAlreadyStartedError,
    BotNotReadyError,
    InvalidTransportParamsError,
    RTVIError,
    StartBotError,
    UnsupportedFeatureError,
    WouldDeadlockError,
)
from .events import Event, RTVIEvent
from .media import AudioSink, AudioSource, Tracks, VideoSource
from .messages import BotReadyData, RTVIMessage
from .options import (
    APIRequest,
    Milliseconds,
    RTVIClientParams,
    RTVIEventCallbacks,
    Seconds,
    callbacks_of,
    connect_limit,
    from_mapping,
)
from .protocol.states import ACTIVE, CloseInfo, TransportState, may_follow
from .session import TEARDOWN_LIMIT, Session, StateCell, collected, forked_error
from .transports.base import Transport, TransportOptions
from .transports.net import Network

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class _Default:
    """Stands for the client's own `request_timeout`, since None means: no limit."""

    def __repr__(self) -> str:
        return "request_timeout"


_DEFAULT = _Default()


@attrs.define(kw_only=True)
class RTVIClientOptions:
    """All that a client is made with; `RTVIClient` takes the same names as keyword arguments and documents them."""

    transport: Transport | None = None
    params: RTVIClientParams | Mapping[str, Any] | None = None
    callbacks: RTVIEventCallbacks | Mapping[str, Callable[..., Any]] | None = None
    timeout: Milliseconds | timedelta | None = None
    enable_mic: bool = True
    enable_cam: bool | None = None
    enable_camera: bool | None = None
    custom_connect_handler: ConnectHandler | None = None
    connect_timeout: Seconds | timedelta | None = None
    request_timeout: Seconds | None = 10.0
    mic: str | AudioSource | None = None
    speaker: str | AudioSink | None = None
    cam: str | VideoSource | None = None
    http_client: httpx.Client | None = None
    events: Literal["thread", "manual"] = "thread"
    ssl_context: Any = attrs.field(default=None, repr=False)
    proxy: str | bool | None = attrs.field(default=None, repr=False)
    max_queued_events: int = 100_000
    max_queued_bytes: int = 64 * 1024 * 1024


class RTVIClient:
    """A blocking client of an RTVI voice bot. Every method may be called on any thread.

    The constructor does no I/O, starts no thread and touches no device.

    Args:
        options: an `RTVIClientOptions`, or a mapping with snake_case or camelCase keys; instead of keyword arguments.
        transport: carries sessions. Without one only `start_bot()` works.
        params: parameters of the requests to your server; see `RTVIClientParams`.
        callbacks: functions to call for events, by callback name (``on_bot_ready``).
        timeout: limit of `connect()`, from the call until the bot is ready, in MILLISECONDS. None: no limit.
        connect_timeout: the same limit in seconds.
        enable_mic: whether the microphone is on at the start.
        enable_cam: whether the camera is; `enable_camera` is another name for it.
        custom_connect_handler: makes the connect request in your way: ``handler(params, timeout, abort_controller)``
            returns what the transport is given. It runs on the connect thread.
        request_timeout: seconds; default limit of every call that waits for an answer of the bot. None: no limit.
        mic, speaker, cam: None for the system's default device, a device id, or a source or sink object.
        http_client: your own for the connect request; never closed by the client.
        events: "thread": handlers run on a thread of the package. "manual": only inside `process_events()`,
            `wait_for()` and `events()`.
        ssl_context: for HTTPS and WSS. None: certificates are verified against httpx's default authorities.
        proxy: URL of an HTTP proxy for both; None: what the environment says; False: none.
        max_queued_events, max_queued_bytes: limits of what may wait for its handlers; over them the session is ended.

    Raises:
        TypeError: an unknown option, or two spellings of one.
    """

    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, **keywords: Any) -> None:
        if options is not None and keywords:
            raise TypeError("Give RTVIClient either one options object or keyword arguments")
        given = from_mapping(RTVIClientOptions, options if options is not None else keywords)
        if given.enable_cam is not None and given.enable_camera is not None:
            raise TypeError("enable_cam and enable_camera are the same option: give one of them")
        if given.events not in ("thread", "manual"):
            raise ValueError(f'events is "thread" or "manual", not {given.events!r}')
        self._options = given
        self._params = from_mapping(RTVIClientParams, given.params)
        self._connect_timeout = connect_limit(given.timeout, given.connect_timeout)
        self._network = Network(ssl_context=given.ssl_context, proxy=given.proxy)
        self._mic_enabled = given.enable_mic
        self._closed = False
        self._dispatcher = Dispatcher(
            self,
            manual=given.events == "manual",
            max_events=given.max_queued_events,
            max_bytes=given.max_queued_bytes,
        )
        for event, function in callbacks_of(given.callbacks):
            self._dispatcher.add(event, function)
        self._states = StateCell(self._dispatcher.lane)
        # Guards `_current`: of two threads that connect at once one begins a session. Any thread may hold it, for an
        # assignment.
        self._lock = threading.Lock()
        self._current: dict[str, Session | None] = {"session": None}
        register_for_fork(self)
        weakref.finalize(self, collected(self._current)).atexit = False
        if (given.enable_cam or given.enable_camera) and (
            given.transport is None or not given.transport.supports_video
        ):
            logger.warning("enable_cam is on, but the transport carries no video; the session goes on without a camera")

    def __repr__(self) -> str:
        transport = self._options.transport
        return f"<RTVIClient {self.state.value}, {transport.name if transport is not None else 'no'} transport>"

    # -- connecting ---------------------------------------------------------------------------------------------------

    def connect(self, connection_params: Any = None) -> BotReadyData:
        """Connect and wait until the bot is ready.

        Args:
            connection_params: what the transport needs, if you have it already (``{"ws_url": ...}``): then no request
                is made.

        Returns:
            What the bot said about itself.

        Raises:
            ConnectionTimeoutError: not within the client's limit, which covers every phase.
            BotAlreadyStartedError: a session is active or under way.
            StartBotError: the connect request failed.
            TransportStartError: the transport could not be opened.
            InvalidTransportParamsError: there is no transport, or nothing that tells it where to connect.
            DisconnectedError: the session ended, or was ended by `disconnect()` on another thread, before the bot was
            ready.
        """
        return self._connect(self._connect_timeout, given=connection_params)

    def start_bot(
        self,
        endpoint: str | APIRequest,
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
    ) -> Any:
        """Ask a server to start a bot; connect to it with `connect(bundle)`.

        `params.headers` and `params.request_data` are sent along only to `base_url`'s own origin. The transport's
        name is sent as ``transport`` unless `request_data` has one: Pipecat's runner chooses by it.

        Args:
            endpoint: URL, or an `APIRequest`.
            timeout: seconds; None: the client's connect timeout.

        Returns:
            What the server answered, for `connect()`.

        Raises:
            StartBotError, ConnectionTimeoutError, BotAlreadyStartedError
        """
        request = _api_request(endpoint, request_data, headers, timeout)
        deadline = Deadline(request.timeout if request.timeout is not None else self._connect_timeout)
        with self._lock:
            session = self._current["session"]
            if session is not None and not session.closed.is_set():
                raise self._already_started()
            owner = self._states.owner = object()
        hub = acquire_hub()
        try:
            self._move(owner, TransportState.AUTHENTICATING, hub.workers)
            abort = AbortController(deadline, lambda: StartBotError("The request was aborted"))
            try:
                bundle = start_bot(abort, self._request(start=request), deadline)
            except BaseException:
                self._move(owner, TransportState.ERROR, hub.workers)
                raise
            self._move(owner, TransportState.AUTHENTICATED, hub.workers)
            return bundle
        finally:
            if hub.release():
                hub.join(Deadline(1.0))

    def start_bot_and_connect(
        self,
        endpoint: str | APIRequest,
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
    ) -> BotReadyData:
        """`start_bot()` and `connect()` in one, under one limit. Arguments as of `start_bot()`, errors as of both."""
        request = _api_request(endpoint, request_data, headers, timeout)
        return self._connect(request.timeout if request.timeout is not None else self._connect_timeout, start=request)

    def disconnect(self) -> None:
        """End the session. Idempotent, bounded (5 s), callable on any thread.

        Calls that wait for answers raise `DisconnectedError`. When it returns, the session's threads are gone and
        `disconnected` was delivered; called inside a handler of this client, `disconnected` follows when the handler
        returns.
        """
        session = self._current["session"]
        if session is None or session.forked:
            return
        session.end(CloseInfo(initiator="client"))
        deadline = Deadline(TEARDOWN_LIMIT)
        session.wait_closed(deadline)
        session.wait_finished(deadline)

    def close(self) -> None:
        """`disconnect()` for good: `connect()` raises from now on."""
        self._closed = True
        self.disconnect()

    def __enter__(self) -> RTVIClient:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect_bot(self) -> None:
        """Ask the bot to leave. Pipecat's then ends the session, and `disconnected` fires."""
        self.send_message(RTVIMessage("disconnect-bot", {}))

    # -- what is ------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> TransportState:
        """The state now. In a forked child, whose parent holds the session, `disconnected`."""
        session = self._current["session"]
        if session is not None and session.forked:
            return TransportState.DISCONNECTED
        return self._states.value

    @property
    def connected(self) -> bool:
        """True while the transport is open (state connected or ready)."""
        return self.state in ACTIVE

    @property
    def version(self) -> str:
        """The version of this package."""
        return __version__

    @property
    def transport_expiry(self) -> float | None:
        """Unix time at which the server will end the session, if the transport knows."""
        return self._options.transport.expiry if self._options.transport is not None else None

    @property
    def params(self) -> RTVIClientParams:
        """The parameters of the requests to your server. May be changed, or replaced by a mapping, at any time."""
        return self._params

    @params.setter
    def params(self, value: RTVIClientParams | Mapping[str, Any]) -> None:
        self._params = from_mapping(RTVIClientParams, value)

    def construct_url(self, endpoint: str) -> str:
        """The URL of an endpoint: "connect", "action", or a path below `params.base_url`.

        Raises:
            RTVIError: `base_url` is missing.
        """
        return self._params.construct_url(endpoint)

    # -- messages -----------------------------------------------------------------------------------------------------

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type. Returns at once and waits for no answer.

        Raises:
            BotNotReadyError, DisconnectedError, MessageTooLargeError, UnsupportedFeatureError
        """
        self._session().send(message)

    def send_client_message(self, type: str, data: Any = None) -> None:
        """Send a message of your application's own; waits for no answer. Errors as of `send_message()`."""
        self.send_message(_client_message(type, data))

    def send_client_request(self, type: str, data: Any = None, timeout: Seconds | _Default | None = _DEFAULT) -> Any:
        """Send a message of your application's own and wait for the bot's answer to it.

        Args:
            type: what your bot knows it by.
            data: plain JSON.
            timeout: seconds; omitted: the client's `request_timeout`; None: no limit.

        Returns:
            The data of the answer (plain JSON, or None).

        Raises:
            RequestTimeoutError: no answer in time; the session goes on.
            RequestRejectedError: the bot refused.
            DisconnectedError: the session ended first.
            BotNotReadyError, MessageTooLargeError, UnsupportedFeatureError
        """
        answer = self._session().request(_client_message(type, data), self._deadline(timeout))
        return answer.data.get("d") if isinstance(answer.data, Mapping) else None

    def send_text(self, content: str, run_immediately: bool = True, audio_response: bool = True) -> None:
        """Send what the user typed.

        Args:
            content: the text.
            run_immediately: the bot answers now, and is interrupted if it is speaking; False: the text joins the
                context.
            audio_response: the answer is spoken; False: it comes as text only.

        Raises:
            BotNotReadyError, DisconnectedError, MessageTooLargeError, UnsupportedFeatureError
        """
        options = {"run_immediately": run_immediately, "audio_response": audio_response}
        self.send_message(RTVIMessage("send-text", {"content": content, "options": options}))

    # -- events -------------------------------------------------------------------------------------------------------

    @overload
    def on(self, event: str | RTVIEvent) -> Callable[[F], F]: ...
    @overload
    def on(self, event: str | RTVIEvent, handler: F) -> F: ...
    def on(self, event: str | RTVIEvent, handler: F | None = None) -> F | Callable[[F], F]:
        """Call `handler(payload)`, or `handler()` if it takes nothing, for each `event`. Also a decorator.

        Handlers of one client run one at a time, in the order of the events, never on an I/O thread. They are held
        strongly.

        Raises:
            ValueError: there is no such event.
            TypeError: the handler cannot be called so.
        """
        return self._add(event, handler, once=False)

    @overload
    def once(self, event: str | RTVIEvent) -> Callable[[F], F]: ...
    @overload
    def once(self, event: str | RTVIEvent, handler: F) -> F: ...
    def once(self, event: str | RTVIEvent, handler: F | None = None) -> F | Callable[[F], F]:
        """As `on()`, for the next `event` only."""
        return self._add(event, handler, once=True)

    def off(self, event: str | RTVIEvent, handler: Callable[..., Any] | None = None) -> None:
        """Call `handler`, or no handler at all, for `event` any longer."""
        self._dispatcher.remove(event, handler)

    def events(self, *events: str | RTVIEvent, timeout: Seconds | None = None) -> EventStream:
        """The `events` (none: all) from now on, as an iterator and context manager. It ends with the session.

        When an event is handed out, every handler of earlier events has returned.

        Args:
            timeout: seconds that each event may take to come; then `RequestTimeoutError`. None: no limit.
        """
        return self._dispatcher.open_stream(events, timeout)

    def wait_for(
        self,
        event: str | RTVIEvent,
        where: Callable[[Event], object] | None = None,
        timeout: Seconds | None = None,
    ) -> Event:
        """Wait for the next `event` for which `where(event)` is true.

        Raises:
            RequestTimeoutError: not within `timeout` seconds.
            DisconnectedError: the session ended first.
            WouldDeadlockError: called inside a handler of this client.
        """
        return wait_for(self._dispatcher, event, where, timeout)

    def process_events(self, timeout: Seconds | None = 0.0) -> int:
        """In manual mode: wait up to `timeout` seconds for a first event, then run the handlers of all that are queued.

        Returns:
            How many events were queued.

        Raises:
            RTVIError: the client is not in manual mode.
            WouldDeadlockError: called inside a handler.
        """
        lane = self._dispatcher.lane
        if not lane.manual:
            raise RTVIError(
                "Handlers of this client run on a thread; make it with events='manual' to run them yourself"
            )
        if lane.is_current:
            raise WouldDeadlockError("process_events() was called inside a handler that it runs")
        return lane.run_queued(Deadline(timeout))

    # -- media --------------------------------------------------------------------------------------------------------

    def tracks(self) -> Tracks:
        """The local and the bot's tracks there are now."""
        return self._options.transport.tracks() if self._options.transport is not None else Tracks()

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, now and for sessions to come."""
        self._mic_enabled = enable
        session = self._live_session()
        if session is not None:
            session.transport.enable_mic(enable)

    @property
    def is_mic_enabled(self) -> bool:
        return self._mic_enabled

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off.

        Raises:
            UnsupportedFeatureError: the transport carries no video.
        """
        if self._options.transport is None:
            raise UnsupportedFeatureError("A client without a transport has no camera", feature="cam")
        self._options.transport.enable_cam(enable)

    @property
    def is_cam_enabled(self) -> bool:
        return self._options.transport is not None and self._options.transport.is_cam_enabled

    # -- inside -------------------------------------------------------------------------------------------------------

    def _add(self, event: str | RTVIEvent, handler: F | None, *, once: bool) -> F | Callable[[F], F]:
        if handler is not None:
            self._dispatcher.add(event, handler, once=once)
            return handler

        def register(function: F) -> F:
            self._dispatcher.add(event, function, once=once)
            return function

        return register

    def _connect(self, timeout: Seconds | None, *, given: Any = None, start: APIRequest | None = None) -> BotReadyData:
        deadline = Deadline(timeout)
        session = self._begin_session(deadline)
        return ConnectAttempt(session, self._request(given=given, start=start), deadline).run()

    def _begin_session(self, deadline: Deadline) -> Session:
        transport = self._options.transport
        if transport is None:
            raise InvalidTransportParamsError(
                "This client has no transport: pass RTVIClient(transport=WebSocketTransport())"
            )
        previous = self._current["session"]
        if previous is not None and previous.ending and not previous.forked:
            # It is on its way out: what remains takes a moment.
            previous.wait_closed(Deadline(deadline.sooner(TEARDOWN_LIMIT)))
        with self._lock:
            if self._closed:
                raise RTVIError("This client is closed for good; make a new one")
            previous = self._current["session"]
            if previous is not None and not previous.closed.is_set():
                raise forked_error() if previous.forked else self._already_started()
            session = Session(transport, self._dispatcher, self._states, deadline, self._transport_options)
            self._current["session"] = session
        return session

    def _transport_options(self, **own: Any) -> TransportOptions:
        options = self._options
        return TransportOptions(
            mic=options.mic,
            speaker=options.speaker,
            cam=options.cam,
            enable_mic=self._mic_enabled,
            network=self._network,
            **own,
        )

    def _request(self, *, given: Any = None, start: APIRequest | None = None) -> ConnectRequest:
        options = self._options
        return ConnectRequest(
            params=self._params,
            given=given,
            start=start,
            handler=options.custom_connect_handler,
            transport_name=options.transport.name if options.transport is not None else "custom",
            network=self._network,
            http_client=options.http_client,
        )

    def _session(self) -> Session:
        session = self._current["session"]
        if session is None:
            raise BotNotReadyError("There is no bot: call connect() first")
        return session

    def _live_session(self) -> Session | None:
        session = self._current["session"]
        return session if session is not None and not session.ending and not session.forked else None

    def _already_started(self) -> BotAlreadyStartedError:
        return BotAlreadyStartedError(f"A session is active (state {self.state.value}); call disconnect() first")

    def _deadline(self, timeout: Seconds | _Default | None) -> Deadline:
        return Deadline(self._options.request_timeout if isinstance(timeout, _Default) else timeout)

    def _move(self, owner: object, state: TransportState, workers: LaneWorkers) -> None:
        """Enter `state` outside of a session, unless one has begun meanwhile."""
        cell = self._states

        def enter() -> bool:
            if cell.owner is not owner or not may_follow(cell.value, state):
                return False
            cell.value = state
            return True

        event = Event(type=RTVIEvent.TRANSPORT_STATE_CHANGED, data=state, received_at=time.monotonic())
        cell.lane.post(partial(self._dispatcher.deliver, event), workers, force=True, when=enter)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


def _client_message(type_: str, data: Any) -> RTVIMessage:
    return RTVIMessage("client-message", {"t": type_} if data is None else {"t": type_, "d": data})


def _api_request(
    endpoint: str | APIRequest,
    request_data: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
    timeout: Seconds | None,
) -> APIRequest:
    if isinstance(endpoint, APIRequest):
        if request_data is not None or headers is not None or timeout is not None:
            raise TypeError("Give start_bot() either an APIRequest or its parts")
        return endpoint
    return APIRequest(endpoint=endpoint, request_data=request_data, headers=headers, timeout=timeout)
