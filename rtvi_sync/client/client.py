"""The client, a blocking facade without logic over `life`, `session` and `event_bus`; and `connect()`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from .._version import __version__
from ..errors import RTVIError
from ..messages import BotReadyData
from ..protocol.states import ACTIVE, CloseInfo, TransportState
from ..protocol.validation import BOOL, COUNT, NAME, PATH, WAIT, from_mapping, function_taking
from ..session.event_bus import EventBus
from ..session.params import APIRequest, RTVIClientParams, Seconds
from ..session.reconnect_policy import ReconnectPolicy
from ..transports.base import Transport
from .actions import BotActions
from .candidates import TransportName, candidates_for, video_first
from .config import BotConfig
from .devices import ClientDevices
from .helpers import HelperRegistry, RTVIClientHelper
from .life import Life
from .messaging import BotMessages
from .options import RTVIClientOptions, api_request, callbacks_of, check_option_names, documents_options
from .turns import ClientTurns

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .event_overloads import ClientEvents
    from .option_types import ConstructorOptions, KeywordOptions
    from .recorder import RecordingSession
    from .stats import ClientStats
else:
    from .events import ClientEvents

ClientT = TypeVar("ClientT", bound="RTVIClient")
HelperT = TypeVar("HelperT", bound=RTVIClientHelper)

# The default limit of `connect(url)`, in seconds. A bot that loads its models may need 20 s. Without a limit, the call
# would wait forever for a bot that doesn't speak RTVI.
_CONNECT_TIMEOUT = 30.0


def _names_methods(cls: type[ClientT]) -> type[ClientT]:
    """Give the methods of the base classes, which are private, the name of `cls`: Python's errors about arguments show
    it.
    """
    for base in cls.__bases__:
        for method in vars(base).values():
            if isinstance(method, FunctionType):
                method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
    return cls


@documents_options
@_names_methods
class RTVIClient(ClientEvents, ClientTurns, ClientDevices, BotMessages, BotConfig, BotActions):
    """A blocking client of an RTVI voice bot. Every method may be called on any thread.

    The constructor does no I/O, starts no thread and opens no device. The constructor and all methods validate their
    arguments first. A wrong type raises `TypeError`, a wrong value `ValueError`; both name the argument.

    Args:
        options: An `RTVIClientOptions`, or a mapping with snake_case or camelCase keys. Instead of keyword arguments.

    Raises:
        TypeError: An option is unknown, is spelled in two ways, or has a wrong type.
        ValueError: An option has a wrong value, such as a file name as a device id.
        MissingExtraError: `echo_cancellation` is True, and the extra `aec` is not installed.
        UnsupportedFeatureError: A callback is for turns, but `track_turns` is False.
    """

    @overload
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any], /) -> None: ...
    @overload
    def __init__(self, **options: Unpack[ConstructorOptions]) -> None: ...
    def __init__(self, options: RTVIClientOptions | Mapping[str, Any] | None = None, **keywords: Any) -> None:
        if options is not None and keywords:
            raise TypeError("Give RTVIClient either one options object or keyword arguments")
        check_option_names("RTVIClient()", keywords, by_url=False)
        given = from_mapping(RTVIClientOptions, options if options is not None else keywords, "options")
        self._request_timeout = given.request_timeout
        self._bus = EventBus(
            self,
            manual=given.events == "manual",
            max_events=given.max_queued_events,
            max_bytes=given.max_queued_bytes,
        )
        callbacks = callbacks_of(given.callbacks)
        for event, function in callbacks:
            self._bus.add(event, function, name=f"on_{event.snake}")
        self._life = Life(given, self._bus)
        self._use_turns(*(event for event, _ in callbacks))
        self._helpers = HelperRegistry(self._bus)
        weakref.finalize(self, self._life.watch.collected).atexit = False
        weakref.finalize(self, self._life.media.collected).atexit = False

    @classmethod
    def for_url(
        cls: type[ClientT],
        url: str,
        *,
        transport: TransportName | Transport = "auto",
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[KeywordOptions],
    ) -> ClientT:
        """Make a client of the bot at `url`, without connecting it. Call `connect()`, or use the client in a ``with``.

        Args:
            url: The bot's address:

                * ``ws://`` or ``wss://``: the bot's WebSocket.
                * ``http://`` or ``https://`` with a path that ends in ``/start``: a start endpoint, as Pipecat's
                  runner and Pipecat Cloud have. The client POSTs to this URL unchanged, as `start_bot()` does.
                * ``http://`` or ``https://`` without a path: a server. The client POSTs to its ``/start``, or to its
                  ``/connect`` if ``/start`` answers 404 or 405. If the server has WebSockets only, the client connects
                  without a request.
                * ``http://`` or ``https://`` with a path that ends in ``/api/offer``: an endpoint for WebRTC offers.
                * any other ``http://`` or ``https://``: a connect endpoint. The client POSTs to this URL unchanged.
            transport: A transport, or its name: "websocket", "webrtc" or "eval". Or the telephone provider to act as:
                "twilio", "telnyx", "plivo" or "exotel". With "auto", `connect()` tries the first three in this order
                until the bot is ready, each with its own start request and connection. It tries WebRTC only if the
                extra is installed, and first if the camera or the screen is on. If the bot stays silent, the first
                transport gets two thirds of the time, and the others share the rest. Without a limit, each gets 10 s.
            token: The token for the WebSocket. Takes precedence over the token in the server's answer.
            headers: Headers of the request to the server, like `params.headers`. If `url` is a WebSocket or takes
                offers: headers of the handshake or the offer.
            options: The options of `RTVIClient`. `params` need no `base_url`.

        Raises:
            InvalidTransportParamsError: `url` cannot be the URL of a bot.
            TypeError: An option is unknown, or is `custom_connect_handler`, which also returns the bot's address.
            ValueError: `transport` is not the name of a transport.
        """
        candidates = candidates_for(url, transport, token, headers)
        if any(options.get(name) for name in ("enable_cam", "enable_camera", "enableCam", "enableCamera")):
            candidates = video_first(candidates)
        if options.get("custom_connect_handler", options.get("customConnectHandler")) is not None:
            raise TypeError("for_url() and custom_connect_handler both say where the bot is: give one of them")
        check_option_names("for_url()", options, by_url=True)
        client = cls(transport=candidates[0].transport, **options)
        client._life.use(candidates, headers)
        return client

    def __repr__(self) -> str:
        if not hasattr(self, "_life"):  # a traceback that shows locals has it, if the constructor has raised
            return "<RTVIClient, not constructed>"
        transport = self._life.transport
        return f"<RTVIClient {self.state.value}, {transport.name if transport is not None else 'no'} transport>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "An RTVIClient cannot be pickled or copied: its threads and its connection belong to this process. "
            "Make a client in the other process, at import or in the function that it runs, and connect it there."
        )

    # -- connecting ---------------------------------------------------------------------------------------------------

    def connect(self, connection_params: Any = None) -> BotReadyData:
        """Connect and wait until the bot is ready.

        After an error, Ctrl-C or an exception of a signal handler, no session remains and `connect()` may be called
        again. It may also be called in a handler, for example of `disconnected`.

        Args:
            connection_params: The transport's parameters, such as ``{"ws_url": ...}``. With them, the client makes no
                request.

        Returns:
            The bot's description of itself.

        Raises:
            ConnectionTimeoutError: The client's limit, which covers every phase, has passed.
            BotAlreadyStartedError: A session is active or being connected, or `start_bot()` is running.
            StartBotError: The connect request failed.
            TransportStartError: The transport could not be opened.
            InvalidTransportParamsError: There is no transport or no address to connect to, or the transport serves
                another client.
            DeviceError: A device that was requested by its id cannot be used. Not if the reconnect policy repeats this
                call: then the session starts without it, and tries it again.
            BotError: The bot reported a fatal error.
            ProtocolError: The client cannot decode the bot's bot-ready, or the bot broke the protocol before it.
            DisconnectedError: The session ended before the bot was ready, for example by `disconnect()` on another
                thread.
            ForkedProcessError: The client was connected when the process forked. Only the parent may use it.
            TypeError, ValueError: `params.request_data` or `params.config` contain a value that is not JSON.
        """
        call = self._life.connecting(given=connection_params)
        try:
            return self._observe("connect", call.run)
        except BaseException:
            call.cancel()
            raise

    def start_bot(
        self,
        endpoint: str | APIRequest | Mapping[str, Any],
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
    ) -> Any:
        """Request a server to start a bot. Connect to the bot with `connect(bundle)`.

        The client sends `params.headers` and `params.request_data` only to the origin of `base_url`. It sends the
        transport's name as ``transport``, unless `request_data` has one. Pipecat's runner chooses by this name.

        Args:
            endpoint: The server's URL, or an `APIRequest`.
            request_data: The JSON body of the request.
            headers: Further headers of the request.
            timeout (seconds): Limit of the call. None: the client's connect timeout.

        Returns:
            The server's answer, for `connect()`. It is also the payload of the event `bot_started`.

        Raises:
            StartBotError: The request failed.
            ConnectionTimeoutError: No answer arrived in time.
            BotAlreadyStartedError: A session is active or being connected, or `start_bot()` is running.
            DisconnectedError: Another thread called `disconnect()`.
        """
        request = api_request(endpoint, request_data, headers, timeout)
        call = self._life.starting(request)
        try:
            return self._observe("start_bot", call.run)
        except BaseException:
            call.cancel()
            raise

    def start_bot_and_connect(
        self,
        endpoint: str | APIRequest | Mapping[str, Any],
        request_data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Seconds | None = None,
    ) -> BotReadyData:
        """Call `start_bot()` and `connect()` with one limit for both. Arguments: as `start_bot()`. Errors: as both."""
        request = api_request(endpoint, request_data, headers, timeout)
        call = self._life.connecting(start=request)
        try:
            return self._observe("start_bot_and_connect", call.run)
        except BaseException:
            call.cancel()
            raise

    def disconnect(self) -> None:
        """End the session or the attempt to connect. Idempotent. Takes at most 5 s. Never raises.

        Calls that wait for answers raise `DisconnectedError`. On return, the session's threads have ended, and handlers
        of `disconnected` have run. If called in a handler of this client, `disconnected` follows when that handler
        returns; in manual mode, with the next `process_events()`. An attempt that has not opened its transport ends
        without `disconnected`.

        The client first sends the messages that are still queued, as long as the server accepts them. If the limit
        passes before all are sent, the client logs a warning, and the `error` of `disconnected` says how many are lost.
        Ctrl-C ends the call at once; the session ends nevertheless.
        """
        call = None
        try:
            call = self._life.ending()
            call.run()
        except BaseException:
            (call or self._life.ending()).insist()
            raise

    def wait(self, timeout: Seconds | None = None) -> CloseInfo:
        """Wait until the session ends. While the client reconnects (`reconnect`), keep waiting.

        Returns after the handlers of `disconnected`, or at once if the last session has ended already. Delivers events
        in manual mode. Ctrl-C interrupts the call and leaves the session open.

        Args:
            timeout (seconds): Limit of the call. None: no limit.

        Returns:
            How the session ended, or why the client did not replace it.

        Raises:
            BotNotReadyError: There was no session yet.
            RequestTimeoutError: The session did not end within `timeout` seconds. It stays open.
            WouldDeadlockError: Called in a handler of this client during the session.
            ForkedProcessError: The client was connected when the process forked.
        """
        WAIT.or_none.check(timeout=timeout)
        return self._bus.streams.wait_for_end(timeout)

    def wait_until_ready(self, timeout: Seconds | None = None) -> None:
        """Wait until a bot is ready. Return at once if one is.

        For calls while the client reconnects, and for threads other than the one that first calls `connect()`. Pass a
        timeout if that `connect()` may fail before it has a session. Delivers events in manual mode.

        Args:
            timeout (seconds): Limit of the call. None: no limit.

        Raises:
            BotNotReadyError: The last session ended or failed to connect, and is not replaced. The text says why.
            RequestTimeoutError: No bot was ready within `timeout` seconds.
            WouldDeadlockError: Called in a handler of this client while no bot is ready.
            ForkedProcessError: The client was connected when the process forked.
        """
        WAIT.or_none.check(timeout=timeout)
        self._life.wait_until_ready(timeout)

    def close(self) -> None:
        """Call `disconnect()` and allow no further session. From now on `connect()` raises."""
        call = None
        try:
            call = self._life.ending(for_good=True)
            call.run()
        except BaseException:
            (call or self._life.ending(for_good=True)).insist()
            raise

    def __enter__(self: ClientT) -> ClientT:
        try:
            if self.state is not TransportState.READY:  # as `connect(url)` returns it
                self.connect()
            return self
        except BaseException as error:
            if not isinstance(error, RTVIError):  # an interrupt: no `with` block will end the session
                self.disconnect()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.disconnect()
        except BaseException:  # an interrupt, perhaps from before `disconnect()` was called
            self._life.ending().insist()
            raise

    # -- properties ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> TransportState:
        """The state. In a forked child of the session's process it is `disconnected`."""
        return self._life.transport_state

    @property
    def connected(self) -> bool:
        """True if the transport is open (state connected or ready)."""
        return self.state in ACTIVE

    @property
    def version(self) -> str:
        """The version of this package."""
        return __version__

    @property
    def transport(self) -> Transport | None:
        """The transport of the current or last session. Before the first session: the transport to try first."""
        return self._life.transport

    @property
    def transport_expiry(self) -> float | None:
        """The Unix time at which the server will end the session. None if the transport doesn't know it."""
        transport = self._life.transport
        return transport.expiry if transport is not None else None

    def stats(self) -> ClientStats:
        """Return counters of the current or last session: bytes, messages, audio, dropped audio and video.

        Fast enough to call every second. Never raises.
        """
        return self._life.stats()

    @property
    def params(self) -> RTVIClientParams:
        """The parameters of the requests to your server. May be changed or replaced at any time."""
        return self._life.params

    @params.setter
    def params(self, value: RTVIClientParams | Mapping[str, Any]) -> None:
        self._life.params = from_mapping(RTVIClientParams, {} if value is None else value, "params")

    def construct_url(self, endpoint: str) -> str:
        """Return the URL of "connect", "action" or a path below `params.base_url`.

        Raises:
            RTVIError: `base_url` is missing.
        """
        return self.params.construct_url(endpoint)

    def record(
        self,
        path: str | os.PathLike[str],
        *,
        audio: bool = True,
        report: bool = False,
        redact: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
        overwrite: bool = False,
        max_bytes: int = 2**30,
    ) -> RecordingSession:
        """Record the current session and later ones: messages and states as JSON lines, audio as a stereo WAV file.

        Recording starts with this call, also before `connect()`. It stops when the result or the client is closed; the
        result is a context manager. The files can be read at any time, also after the process was killed. Recording
        never delays a session: if the disk is too slow, the recording has gaps, which `lost` lists.

        The recording has ``***`` in place of secrets. Secrets are the tokens, headers and query values that this client
        knows, and strings with a name such as ``api_key``. The words of user and bot are not masked.

        Args:
            path: Path of the files ``NAME.jsonl`` and ``NAME.wav``, with one of these suffixes or none. The client's
                next session is recorded as ``NAME-2.jsonl``.
            audio: False: no WAV file.
            report: True: write a page that shows each session, ``NAME.html``, when the recording stops. If that fails,
                a warning is logged.
            redact: A function that is called with each row, on the thread that writes. It returns the row, changed or
                unchanged, or None to leave it out.
            overwrite: True: replace existing files.
            max_bytes (bytes): Limit of the files of one session. The recording stops there.

        Raises:
            FileExistsError: A file of that name exists.
            OSError: The file cannot be created.
            TypeError, ValueError: An argument cannot be used.
            NoThreadError: No thread can be started.
        """
        PATH.check(path=path)
        BOOL.check(audio=audio, report=report, overwrite=overwrite)
        function_taking("row").or_none.check(redact=redact)
        COUNT.check(max_bytes=max_bytes)
        from .recorder import record  # most clients record nothing

        return record(
            self._life,
            Path(path),
            audio=audio,
            page_of=_page_maker() if report else None,
            redact=redact,
            overwrite=overwrite,
            max_bytes=max_bytes,
        )

    # -- helpers ------------------------------------------------------------------------------------------------------

    def register_helper(self, service: str, helper: HelperT) -> HelperT:
        """Register a helper for one of the bot's services. From now on it gets the messages that it handles.

        Args:
            service: Key of the service, such as "llm".
            helper: The helper. It serves one service of one client.

        Returns:
            The helper.

        Raises:
            RTVIError: The service has a helper already, or the helper has a service.
            TypeError: `helper` is not an `RTVIClientHelper`.
        """
        NAME.check(service=service)
        return self._helpers.register(self, service, helper)

    def get_helper(self, service: str) -> RTVIClientHelper | None:
        """Return the helper of a service, or None."""
        NAME.check(service=service)
        return self._helpers.get(service)

    def unregister_helper(self, service: str) -> None:
        """Unregister the helper of a service. Does nothing if there is none."""
        NAME.check(service=service)
        self._helpers.unregister(service)


def _page_maker() -> Callable[[Path], str]:
    """Return the function that makes the page of a recording. It is in a layer above this module."""
    from .. import Recording

    return lambda rows: Recording.load(rows).report()


def connect(
    url: str,
    *,
    transport: TransportName | Transport = "auto",
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Unpack[KeywordOptions],
) -> RTVIClient:
    """Connect to the bot at `url`, and return the client when the bot is ready.

    The client is a context manager, which disconnects on exit. The arguments are the same as for
    `RTVIClient.for_url()`, but `connect_timeout` is 30 s by default. `connect_timeout=None` waits forever. This is also
    the default if `reconnect` repeats the first `connect()`, as `ReconnectPolicy.forever()` does.

    Raises:
        ConnectError: No transport reached the bot. `attempts` lists all attempts.
        RTVIError: As `RTVIClient.connect()`.
        TypeError, ValueError: As `RTVIClient.for_url()`.
    """
    check_option_names("connect()", options, by_url=True)
    policy = options.get("reconnect")
    unlimited = isinstance(policy, ReconnectPolicy) and policy.first_connect
    if not unlimited and not options.keys() & {"timeout", "connect_timeout", "connectTimeout"}:
        options["connect_timeout"] = _CONNECT_TIMEOUT
    client = RTVIClient.for_url(url, transport=transport, token=token, headers=headers, **options)
    try:
        client.connect()
        return client
    except BaseException:
        client.close()
        raise
