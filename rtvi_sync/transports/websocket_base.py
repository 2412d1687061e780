"""The common base of the transports over one WebSocket: all but the encoding of messages and audio."""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypedDict
from urllib.parse import SplitResult, quote, urlsplit

import attrs

from ..concurrency.abort import AbortSignal
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..errors import DisconnectedError, InvalidTransportParamsError, ProtocolError, RTVIError
from ..messages import RTVIMessage
from ..net.upgrade import OWN_HEADERS, open_websocket
from ..net.urls import parse_url, printable, url_fault
from ..protocol.states import CloseInfo
from ..protocol.validation import BOOL, COUNT, SECONDS, STRING, URL, headers_without, one_of
from .auth_bundle import check_no_login, missing_url, reachable, with_cookies, without_tls_that_is_not_there
from .base import Inbound, Transport, TransportOptions, TransportStats
from .websocket_connection import WebSocketConnection
from .websocket_frames import BINARY, TEXT

logger: logging.Logger = package_logger(__name__)

# A bot answers a close frame within milliseconds. If it takes no byte and sends no answer for 1 s, it has hung.
_POLITE_CLOSE_TIMEOUT = 1.0
# The first 20 undecodable messages of a session are logged as warnings; the rest must not fill the application's log.
_MAX_WARNINGS = 20
_TOKEN_IN = one_of("query", "header")
_HEADERS = headers_without(*OWN_HEADERS)


class WebSocketReceiver(abc.ABC):
    """The decoder of one session's WebSocket messages. Used on the I/O thread only.

    Attributes:
        opcode: the kind of messages that it reads; the other kind is counted and ignored.
        advice: the advice about messages of the other kind.
        undecodable: number of messages of its own kind that could not be decoded.
        ignored: number of messages of the other kind.
        audio: seconds of the bot's audio.
    """

    opcode: ClassVar[int]
    advice: ClassVar[str]

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._on_messages: Callable[[Sequence[Inbound]], None] = options.on_messages
        self._receive_audio: Callable[[bytes, int, int], None] = options.media.receive_audio
        self.undecodable: int = 0
        self.ignored: int = 0
        self.audio: float = 0.0

    @abc.abstractmethod
    def receive(self, payloads: Sequence[bytes]) -> None:
        """Deliver consecutive messages of the kind that is read."""

    def ignore(self, payloads: Sequence[bytes]) -> None:
        """Count consecutive messages of the other kind."""
        if not self.ignored:
            logger.warning("The bot sends %s frames, which are ignored. %s", self.other_kind, self.advice)
        self.ignored += len(payloads)

    def refuse(self, error: ProtocolError) -> None:
        """Count and log a message that cannot be decoded."""
        self.undecodable += 1
        level = logging.WARNING if self.undecodable <= _MAX_WARNINGS else logging.DEBUG
        logger.log(level, "Cannot decode a message of the server; skipped it: %s", error)

    def deliver_audio(self, pcm: bytes, sample_rate_hz: int, num_channels: int) -> None:
        """Count the audio and pass it on. The media reject an impossible rate or number of channels."""
        if sample_rate_hz > 0 and num_channels > 0:
            self.audio += len(pcm) / (2 * sample_rate_hz * num_channels)
        self._receive_audio(pcm, sample_rate_hz, num_channels)

    @property
    def other_kind(self) -> str:
        """The name of the frames that are ignored."""
        return "binary" if self.opcode == TEXT else "text"

    def diagnosis(self) -> str | None:
        """Return, in a sentence or two, how the received messages explain that the bot is not ready, or None."""
        if self.ignored:
            return f"It sent {self.ignored} {self.other_kind} frames instead. {self.advice}"
        return None


class WebSocketOptions(TypedDict, total=False):
    """Names and types of the options that all transports over one WebSocket have, for type checkers."""

    token_in: Literal["query", "header"]
    allow_insecure: bool
    max_message_size: int
    max_inbound_message_size: int
    stall_timeout: float | None
    ping_interval: float | None
    ping_timeout: float | None


class WebSocketBase(Transport):
    """The base class of transports over one WebSocket; `WebSocketTransport` documents the arguments."""

    ends_in_time = True
    supports_audio = True
    #: The decoder of the bot's messages. Messages to the bot have the same `opcode`.
    receiver_class: ClassVar[type[WebSocketReceiver]]
    #: The bot's part that this transport needs, as the end of an error text.
    needs: str
    # A default, so that the repr works in a traceback of the constructor that shows locals.
    _ws_url: SplitResult | None = None

    def __init__(
        self,
        ws_url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        token_in: Literal["query", "header"] = "query",  # noqa: S107 - a place, not a token
        allow_insecure: bool = False,
        max_message_size: int = 1_048_576,
        max_inbound_message_size: int = 16 * 1024 * 1024,
        stall_timeout: float | None = 10.0,
        ping_interval: float | None = 40.0,
        ping_timeout: float | None = 10.0,
    ) -> None:
        URL.or_none.check(ws_url=ws_url)
        STRING.or_none.check(token=token)
        _HEADERS.or_none.check(headers=headers)
        _TOKEN_IN.check(token_in=token_in)
        if token is not None:
            _quoted(token)
            if token_in == "header":  # noqa: S105
                _HEADERS.check(token={"Authorization": f"Bearer {token}"})
        BOOL.check(allow_insecure=allow_insecure)
        COUNT.check(max_message_size=max_message_size, max_inbound_message_size=max_inbound_message_size)
        SECONDS.or_none.check(stall_timeout=stall_timeout, ping_interval=ping_interval, ping_timeout=ping_timeout)
        self._ws_url = _parse_url(ws_url) if ws_url is not None else None
        self._token = token
        self._headers = dict(headers or {})
        self._token_in = token_in
        self._allow_insecure = allow_insecure
        self.max_message_size = max_message_size
        self._max_inbound_message_size = max_inbound_message_size
        self._stall_timeout = stall_timeout
        self._ping_interval = ping_interval
        self._ping_timeout = ping_timeout
        self._receiver: WebSocketReceiver | None = None
        self._last_stats = TransportStats()
        self._last_end: CloseInfo | None = None  # how the last connection has ended
        self._reached: tuple[str, Mapping[str, str]] | None = None  # see `credentials()`
        self._hung_up = False  # the server has ended the connection without having sent anything
        # Guards the three fields below, because an abandoned attempt must not store its connection later. Any thread
        # may hold it, for a few assignments. Re-entrant, because a finalizer may run in between.
        self._lock = new_lock()
        self._connection: WebSocketConnection | None = None
        self._abort: AbortSignal | None = None
        self._leftover: bytes | None = None  # bytes read behind the handshake; None: the connection is being read
        register_for_fork(self)

    def __repr__(self) -> str:
        url = printable(self._ws_url.geturl()) if self._ws_url is not None else None
        return f"{type(self).__name__}(ws_url={url!r})"

    # -- session ------------------------------------------------------------------------------------------------------

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """Start a session with new counters."""
        super().initialize(options, on_message)
        self._receiver, self._last_stats, self._last_end, self._hung_up = None, TransportStats(), None, False

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the WebSocket. The bot's messages are read from `send_ready_message()` on."""
        url, headers = self._target(auth_bundle)
        self._reached = url.geturl(), headers
        sock, leftover, detach = open_websocket(url, headers, self.options.network, abort, self._shown(url))
        options = self.options
        runtime = options._runtime
        assert runtime is not None, "the session sets it"

        def on_closed(info: CloseInfo) -> None:
            if self._connection is connection:  # otherwise disconnect() was called
                # An `RTVIError` is raised on this side: the server did not hang up.
                self._hung_up = not connection.has_received and not isinstance(info.error, RTVIError)
                self._report_end(options, info)

        receiver = self._make_receiver()
        connection = WebSocketConnection(
            sock,
            runtime.io,
            on_messages={TEXT: receiver.ignore, BINARY: receiver.ignore, receiver.opcode: receiver.receive},
            on_closed=on_closed,
            max_message_bytes=self._max_inbound_message_size,
            max_queued_bytes=max(16 * 1024 * 1024, 2 * self.max_message_size),
            stall_timeout=self._stall_timeout,
            ping_interval=self._ping_interval,
            ping_timeout=self._ping_timeout,
        )
        with self._lock:
            abandoned = abort.aborted
            if not abandoned:
                self._connection, self._abort, self._leftover = connection, abort, leftover
                self._receiver = receiver
        detach()
        if abandoned:
            sock.close()
            abort.raise_if_aborted()

    def _make_receiver(self) -> WebSocketReceiver:
        """Return the decoder of a new session."""
        return self.receiver_class(self.options)

    def _report_end(self, options: TransportOptions, info: CloseInfo) -> None:
        """Report that the connection of the session with `options` has ended. Called on the I/O thread."""
        options.on_closed(info)

    def send_ready_message(self) -> None:
        """Send the messages that open the session, `client-ready` by default, and start to read.

        Messages that were read in `connect()` would be delivered before the event `connected`. Reading starts last,
        because the I/O thread, which wakes for it, would wait for this thread.
        """
        with self._lock:
            connection, leftover, self._leftover = self._connection, self._leftover, None
        try:
            self._open_session()
        finally:
            if connection is not None and leftover is not None:
                connection.start(leftover)

    def _open_session(self) -> None:
        """Send the messages that open the session."""
        self._send_first(self.options.client_ready)

    def _send_first(self, message: RTVIMessage) -> None:
        """Send a message that opens the session. If the server has hung up, the I/O thread reports how."""
        try:
            self.send_message(message)
        except DisconnectedError:
            if self._connection is None:  # disconnect() was called
                raise

    def disconnect(self) -> None:
        """Close the WebSocket.

        Raises:
            DisconnectedError: Messages had not reached the server, as far as the system knows.
        """
        with self._lock:
            connection, self._connection = self._connection, None
            abort, self._abort = self._abort, None
            leftover, self._leftover = self._leftover, None
        if connection is not None:
            # Without reading, the peer's close frame would not be seen, so the close does not wait for it.
            abandoned = leftover is not None or (abort is not None and abort.aborted)
            limit = self.options.time_to_close()
            in_time = connection.close(0.0 if abandoned else _POLITE_CLOSE_TIMEOUT, limit)
            self._last_end = connection.info
            self._last_stats = stats = connection.stats()
            if stats.audio_unsent:
                # Audio is dropped instead of delayed, and the application must be able to see that.
                logger.warning(
                    "Audio was lost in this session: %.2f s were not sent because the server read too slowly",
                    stats.audio_unsent,
                )
            if not in_time:
                late = f"The {self.name} transport does not disconnect in time; the last messages may be lost"
                raise DisconnectedError(late, initiator="client")
            (messages, size), info = connection.unsent, connection.info
            if messages and self.carries_messages and not abandoned and info is not None:
                cure = "Wait for the bot's answer before you disconnect, or send less over a slow line"
                raise DisconnectedError(
                    f"Messages were lost, at least {messages} ({size} bytes): they had not reached the server when the "
                    f"session ended. {cure if info.by_application else 'Send them again in the next session'}",
                    initiator=info.initiator,
                )

    def stats(self) -> TransportStats:
        """Return the counters of the current session, or of the last one."""
        connection, receiver = self._connection, self._receiver
        stats = connection.stats() if connection is not None else self._last_stats
        if receiver is None:
            return stats
        ignored = {f"{receiver.other_kind}_frames_ignored": receiver.ignored}
        return attrs.evolve(stats, audio_received=receiver.audio, **ignored)

    def diagnosis(self) -> str | None:
        """Return the part that the bot may lack, or the kind of frames that this transport does not read, or None."""
        if self._hung_up:
            return f"The server hung up before the bot had sent anything: see its log. {self.needs}"
        receiver = self._receiver
        return receiver.diagnosis() if receiver is not None else None

    def start_media(self) -> None:
        """Start the sources, timed by the I/O thread.

        Sending does not block, and two threads that send would wait for each other.
        """
        self.options.media.start(self.send_audio, on_io_thread=True)

    def _send(self, payload: bytes, audio: float = 0.0) -> None:
        """Send one WebSocket message, which holds `audio` seconds of audio.

        Raises:
            DisconnectedError: there is no connection, or it was lost.
        """
        connection = self._connection
        if connection is None:
            if (info := self._last_end) is not None:
                raise info.as_error()
            raise DisconnectedError("The WebSocket is not open; call connect() first", initiator="client")
        connection.send(self.receiver_class.opcode, payload, audio)

    def after_fork_in_child(self) -> None:
        """Forget the parent's connection, and replace the lock, whose holder does not exist in the child."""
        self._lock = new_lock()
        self._connection = self._abort = self._leftover = None

    def credentials(self) -> tuple[str, Mapping[str, str]]:
        """Return the WebSocket's address, with the token, and the headers of the handshake."""
        own = self._ws_url.geturl() if self._ws_url is not None else ""
        return self._reached or (own, {**self._headers, "Authorization": self._token or ""})

    # -- address ------------------------------------------------------------------------------------------------------

    def _target(self, bundle: Any) -> tuple[SplitResult, dict[str, str]]:
        given = bundle if isinstance(bundle, Mapping) else {}
        own = self._ws_url if bundle is None or isinstance(bundle, Mapping) else None
        url = own or _url_in(bundle, self.bundle_source, type(self).__name__)
        start = self.start_request
        if own is None and start is not None:
            url = without_tls_that_is_not_there(reachable(url, start), start, self.options.network)
            if url.hostname != urlsplit(start.url).hostname:
                check_no_login(url, self.bundle_source)
        if url.scheme == "ws" and self.secure_bundle and not self._allow_insecure:
            server = urlsplit(start.url).netloc if own is None and start is not None else url.netloc
            encrypted = printable(url._replace(scheme="wss", netloc=server, query="").geturl())
            raise InvalidTransportParamsError(
                f"The connect endpoint was reached over https, but {printable(url.geturl())} is not encrypted: an "
                "attacker on the network could read and change the token and the conversation. Let the server answer "
                f'with a wss:// URL; pass the one that takes TLS, connect("{encrypted}"), if the bot needs no start '
                f"request; or allow it explicitly: {type(self).__name__}(allow_insecure=True)"
            )
        token = self._token if self._token is not None else given.get("token")
        headers = dict(self._headers)
        if isinstance(token, str) and token:
            if self._token_in == "header":  # noqa: S105
                headers["Authorization"] = f"Bearer {token}"
            else:
                url = self._with_token(url, _quoted(token))
        return url, with_cookies(headers, url, start)

    def _with_token(self, url: SplitResult, token: str) -> SplitResult:
        """Return the address with the token, whose special characters are quoted."""
        query = f"{url.query}&" if url.query else ""
        return url._replace(query=f"{query}token={token}")

    def _shown(self, url: SplitResult) -> SplitResult:
        """Return the address for errors, which leave the query out."""
        return url


def _url_in(bundle: Any, source: str, transport: str) -> SplitResult:
    text = (bundle.get("ws_url") or bundle.get("wsUrl")) if isinstance(bundle, Mapping) else None
    if not isinstance(text, str):
        raise InvalidTransportParamsError(missing_url(bundle, source, transport))
    return _parse_url(text, source)


def _parse_url(text: str, source: str = "") -> SplitResult:
    url = parse_url(text, "ws", "wss")
    if url is None:
        raise InvalidTransportParamsError(
            f"{source and f'{source} an unusable ws_url. '}"
            f"{printable(text)!r} is not a WebSocket URL: {url_fault(text, 'ws', 'wss')}"
        )
    return url


def _quoted(token: str) -> str:
    try:
        return quote(token, safe="")
    except UnicodeEncodeError:
        raise InvalidTransportParamsError(
            "The token is not valid: it has a lone surrogate, half of a character. Pass the server's token unchanged"
        ) from None
