"""The client, a blocking facade without logic over `life`, `session` and `event_bus`; and `connect()`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
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

# The default limit of `connect(url)`, in seconds. A bot that loads its models may need 20; a bot without RTVI would be
# waited for without end.
_CONNECT_TIMEOUT = 30.0


@documents_options
class RTVIClient(ClientEvents, ClientTurns, ClientDevices, BotMessages, BotConfig, BotActions):
    """A blocking client of an RTVI voice bot. Every method may be called on any thread.

    The constructor does no I/O, starts no thread and opens no device. It and every method validate their arguments
    first: a wrong type raises `TypeError`, a wrong value `ValueError`, and both name the argument.

    Args:
        options: an `RTVIClientOptions`, or a mapping with snake_case or camelCase keys; instead of keyword arguments.

    Raises:
        TypeError: an unknown option, two spellings of one, or a wrong type.
        ValueError: a wrong value, such as the name of a file as a device id.
        MissingExtraError: `echo_cancellation` is True, and the extra `aec` is not installed.
        UnsupportedFeatureError: `track_turns` is False, and a callback is about turns.
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
        """Make a client of the bot at `url`. It is not connected; `connect()` connects it, and so does ``with``.

        Args:
            url: where the bot is:

                * ``ws://`` or ``wss://``: the bot's WebSocket.
                * ``http://`` or ``https://`` with a path that ends in ``/start``: a start endpoint, such as that of
                  Pipecat's runner or Pipecat Cloud. It is POSTed to as it is, like by `start_bot()`.
                * ``http://`` or ``https://`` without a path: a server. Its ``/start`` is POSTed to, or, if that answers
                  404 or 405, its ``/connect``. A server for WebSockets only is connected to without a request.
                * ``http://`` or ``https://`` with a path that ends in ``/api/offer``: takes a WebRTC offer.
                * any other ``http://`` or ``https://``: a connect endpoint. It is POSTed to as it is.
            transport: a transport, or its name: "websocket", "webrtc" or "eval", or the telephone provider as which the
                client calls ("twilio", "telnyx", "plivo", "exotel"). "auto": `connect()` tries the first three in this
                order, WebRTC if its extra is installed, or WebRTC first if the camera or the screen is on, each with a
                start request and a connection of its own, until the bot is ready. A bot that is silent on one of them
                gets two thirds of the time on the first of them, and an even part of what is left on the others (10 s
                on each without a limit).
            token: for the WebSocket; it takes precedence over the token in the server's answer.
            headers: for the request to the server, like `params.headers`; or, if `url` is that of a WebSocket or an
                offer, for its handshake or the offer.
            options: as `RTVIClient` takes them. `params` need no `base_url`.

        Raises:
            InvalidTransportParamsError: it cannot be the URL of a bot.
            TypeError: an unknown option, or `custom_connect_handler`, which returns the bot's address, too.
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
            "An RTVIClient can neither be pickled nor copied: its threads and its connection belong to this process. "
            "Make a client in the other process, at import or in the function that it runs, and connect it there."
        )

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
            BotAlreadyStartedError: a session is active or under way, or a call of `start_bot()` is.
            StartBotError: the connect request failed.
            TransportStartError: the transport could not be opened.
            InvalidTransportParamsError: there is no transport, nothing that says where to connect, or it serves another
                client.
            DeviceError: a device that was requested by its id cannot be used.
            BotError: the bot reported a fatal error.
            ProtocolError: its bot-ready cannot be decoded, or it broke the protocol before.
            DisconnectedError: the session ended, or was ended by `disconnect()` on another thread, before the bot was
                ready.
            ForkedProcessError: the client was connected when the process forked; only the parent may use it.
            TypeError, ValueError: `params.request_data` or `params.config` hold something that is not JSON.

        After any of them it may be called again, and so it may after Ctrl-C or an exception of a signal handler, which
        leave no session. It may be called inside a handler, too, for example that of `disconnected`.
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
        """Request a server to start a bot; connect to the bot with `connect(bundle)`.

        `params.headers` and `params.request_data` are sent only to `base_url`'s own origin. The transport's name is
        sent as ``transport`` unless `request_data` has one: Pipecat's runner chooses by it.

        Args:
            endpoint: URL, or an `APIRequest`.
            timeout: seconds; None: the client's connect timeout.

        Returns:
            The server's answer, for `connect()`. It is also the payload of the event `bot_started`.

        Raises:
            StartBotError: the request failed.
            ConnectionTimeoutError: no answer in time.
            BotAlreadyStartedError: a session is active or under way, or another call of `start_bot()` is.
            DisconnectedError: `disconnect()` was called on another thread.
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
        """Call `start_bot()` and `connect()` under one limit. Arguments as of `start_bot()`, errors as of both."""
        request = api_request(endpoint, request_data, headers, timeout)
        call = self._life.connecting(start=request)
        try:
            return self._observe("start_bot_and_connect", call.run)
        except BaseException:
            call.cancel()
            raise

    def disconnect(self) -> None:
        """End the session, or the attempt that is under way. Idempotent, bounded (5 s), callable on any thread.

        Calls that wait for answers raise `DisconnectedError`. When it returns, the session's threads have ended and
        `disconnected` was delivered. Inside a handler of this client, `disconnected` follows when the handler returns;
        in manual mode, with the next `process_events()`. An attempt that has not opened its transport ends without
        `disconnected`. Never raises.

        Messages that were sent before leave first, as long as the server takes them. If some are left when the limit
        passes, the `error` of `disconnected` says how many, and a warning is logged. Ctrl-C ends the call at once, and
        the session nevertheless.
        """
        call = None
        try:
            call = self._life.ending()
            call.run()
        except BaseException:
            (call or self._life.ending()).insist()
            raise

    def wait(self, timeout: Seconds | None = None) -> CloseInfo:
        """Wait until the session has ended, and every session that replaced it (`reconnect`).

        If the last session has ended already, it returns at once. The handlers of `disconnected` have returned by then.
        In manual mode it delivers events meanwhile. Ctrl-C interrupts it and leaves the session as it is.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            How it ended, or why it was not replaced.

        Raises:
            BotNotReadyError: there was no session yet.
            RequestTimeoutError: not within `timeout` seconds; the session goes on.
            WouldDeadlockError: called inside a handler of this client during the session.
            ForkedProcessError: the client was connected when the process forked.
        """
        WAIT.or_none.check(timeout=timeout)
        return self._bus.streams.wait_for_end(timeout)

    def wait_until_ready(self, timeout: Seconds | None = None) -> None:
        """Wait until there is a bot that is ready: return at once if there is, else when the next session has one.

        For calls between two sessions of a client that reconnects, and on threads beside that of the first `connect()`.
        Pass a timeout where that may fail before it has a session. In manual mode it delivers events meanwhile.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            BotNotReadyError: the last session has ended, or could not begin, and is not replaced; the text says why.
            RequestTimeoutError: not within `timeout` seconds.
            WouldDeadlockError: called inside a handler of this client while no bot is ready.
            ForkedProcessError: the client was connected when the process forked.
        """
        WAIT.or_none.check(timeout=timeout)
        self._life.wait_until_ready(timeout)

    def close(self) -> None:
        """Call `disconnect()` and refuse further sessions: `connect()` raises from now on."""
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
            if not isinstance(error, RTVIError):  # an interrupt: there is no `with` that ends the session
                self.disconnect()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.disconnect()
        except BaseException:  # an interrupt, which may have been there before the call had begun
            self._life.ending().insist()
            raise

    # -- properties ---------------------------------------------------------------------------------------------------

    @property
    def state(self) -> TransportState:
        """Return the state. In a forked child, whose parent holds the session, it is `disconnected`."""
        return self._life.transport_state

    @property
    def connected(self) -> bool:
        """True if the transport is open (state connected or ready)."""
        return self.state in ACTIVE

    @property
    def version(self) -> str:
        """Return the version of this package."""
        return __version__

    @property
    def transport(self) -> Transport | None:
        """Return the transport of the current or last session; before the first one, the one that is tried first."""
        return self._life.transport

    @property
    def transport_expiry(self) -> float | None:
        """Return the Unix time at which the server will end the session, if the transport knows it."""
        transport = self._life.transport
        return transport.expiry if transport is not None else None

    def stats(self) -> ClientStats:
        """Return counters of the current or last session: bytes, messages, audio, and what of it was dropped.

        Fast enough to be called every second. Never raises.
        """
        return self._life.stats()

    @property
    def params(self) -> RTVIClientParams:
        """Return the parameters of the requests to your server. They may be changed or replaced at any time."""
        return self._life.params

    @params.setter
    def params(self, value: RTVIClientParams | Mapping[str, Any]) -> None:
        self._life.params = from_mapping(RTVIClientParams, {} if value is None else value, "params")

    def construct_url(self, endpoint: str) -> str:
        """Return the URL of an endpoint: "connect", "action", or a path below `params.base_url`.

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
        """Record the session, and those that follow: messages and states as JSON lines, audio as a stereo WAV file.

        It begins at the call, which may come before `connect()`, and ends with `close()` of the result, which is a
        context manager, or with that of the client. The files can be read at any time, also after the process was
        killed. Recording never holds up a session; what the disk does not take in time is counted in `lost`.

        Secrets are replaced by ``***``: the tokens, headers and query values that this client knows, wherever they
        occur, and strings whose name is that of a secret, such as ``api_key``. What people say stays as it is.

        Args:
            path: of the files, ``NAME.jsonl`` and ``NAME.wav``, with one of these suffixes or none. The next session
                of the client has ``NAME-2.jsonl``.
            audio: False: no WAV file.
            report: write a page that shows each session, ``NAME.html``, when the recording ends. If that fails, a
                warning is logged.
            redact: called with each row, on the thread that writes; returns the row, changed or not, or None to leave
                it out.
            overwrite: replace files that exist.
            max_bytes: of the files of one session; the recording ends there.

        Raises:
            FileExistsError: there is a file of that name.
            OSError: the file cannot be created.
            TypeError, ValueError: an argument cannot be used.
            NoThreadError: no thread can be started.
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
        """Register the helper of one of the bot's services; from now on it gets the messages that it handles.

        Args:
            service: key of the service, such as "llm".
            helper: serves one service of one client.

        Returns:
            The helper.

        Raises:
            RTVIError: the service has a helper, or the helper a service.
            TypeError: it is not an `RTVIClientHelper`.
        """
        NAME.check(service=service)
        return self._helpers.register(self, service, helper)

    def get_helper(self, service: str) -> RTVIClientHelper | None:
        """Return the helper of a service; None if it has none."""
        NAME.check(service=service)
        return self._helpers.get(service)

    def unregister_helper(self, service: str) -> None:
        """Unregister the helper of a service. Without effect if it has none."""
        NAME.check(service=service)
        self._helpers.unregister(service)


def _page_maker() -> Callable[[Path], str]:
    """Return a function that makes the page of a recording; the package has it from a layer above this one."""
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

    The client is a context manager: leaving it disconnects. The arguments are those of `RTVIClient.for_url()`, except
    that `connect_timeout` is 30 s by default. None: no limit, which is also the default with a policy that repeats
    the first `connect()`, as `ReconnectPolicy.forever()` does.

    Raises:
        ConnectError: No transport reached the bot; `attempts` has all attempts.
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
