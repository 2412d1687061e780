"""The WebSocket transport: RTVI and audio in the protobuf frames of Pipecat's bots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import SplitResult, quote

import attrs

from ..concurrency.abort import AbortSignal
from ..concurrency.lifecycle import register_for_fork
from ..errors import DisconnectedError, InvalidTransportParamsError, ProtocolError
from ..messages import RTVIMessage
from ..protocol import audio_frames, envelope, frames
from ..protocol.states import CloseInfo
from ..protocol.validation import BOOL, COUNT, SECONDS, STRING, STRINGS, URL, one_of
from .auth_bundle import missing_url
from .base import Inbound, Transport, TransportOptions, TransportStats
from .net import parse_url, printable, url_fault
from .websocket_connection import WebSocketConnection
from .websocket_frames import BINARY, TEXT
from .websocket_handshake import open_websocket

logger: logging.Logger = logging.getLogger(__name__)

# A bot answers a close frame within milliseconds; one that neither answers nor takes a byte for 1 s has hung.
_POLITE_CLOSE_TIMEOUT = 1.0
# The first 20 undecodable messages of a session are logged as warnings; the rest must not fill the application's log.
_MAX_WARNINGS = 20
_TEXT_FRAMES = (
    "A bot with a JSON serializer sends such frames, and this transport needs protobuf. "
    "Give the bot's transport a ProtobufFrameSerializer."
)


_TOKEN_IN = one_of("query", "header")


class WebSocketTransport(Transport):
    """A connection to a bot over WebSocket. Carries audio both ways, no video.

    Args:
        ws_url: the bot's address, ``ws://`` or ``wss://``; it takes precedence over the ``ws_url`` or ``wsUrl`` in the
            answer of the connect endpoint. None: use that one.
        token: sent to the server as `token_in` states; it takes precedence over the answer's ``token``.
        headers: sent with the handshake. (`params.headers` never are.)
        token_in: "query" appends ``?token=`` to the URL, as the JavaScript client does; "header" sends
            ``Authorization: Bearer``.
        allow_insecure: True: accept ``ws://`` even if the connect endpoint was reached over ``https://``, although the
            token and the conversation are then sent in plain text.
        max_message_size: largest serialized frame that is sent, in bytes.
        max_inbound_message_size: largest message that is received, in bytes; a larger one ends the session.
        stall_timeout: seconds after which a server that reads nothing ends the session; None: no limit.
        ping_interval: seconds of silence of the server after which it is pinged; None: never.
        ping_timeout: seconds that the server may remain silent after a ping before the session is ended; None: no
            limit. Pings then keep the connection open and measure the round trip, and do not end the session.
    """

    name = "websocket"
    supports_audio = True

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
        STRINGS.or_none.check(headers=headers)
        _TOKEN_IN.check(token_in=token_in)
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
        self._receiver: _Receiver | None = None
        self._last_stats = TransportStats()
        # Guards the three fields below, because an abandoned attempt must not store its connection later. Any thread
        # may hold it, for a few assignments. Re-entrant, because a finalizer may run in between.
        self._lock = threading.RLock()
        self._connection: WebSocketConnection | None = None
        self._abort: AbortSignal | None = None
        self._leftover: bytes | None = None  # bytes read behind the handshake; None: the connection is being read
        register_for_fork(self)

    def __repr__(self) -> str:
        url = printable(self._ws_url.geturl()) if self._ws_url is not None else None
        return f"WebSocketTransport(ws_url={url!r})"

    # -- session ------------------------------------------------------------------------------------------------------

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """Begin a session with new counters."""
        super().initialize(options, on_message)
        self._receiver, self._last_stats = None, TransportStats()

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the WebSocket. The bot's messages are read from `send_ready_message()` on."""
        frames.load()
        url, headers = self._target(auth_bundle)
        sock, leftover, detach = open_websocket(url, headers, self.options.network, abort)
        options = self.options
        runtime = options._runtime
        assert runtime is not None, "the session sets it"

        def on_closed(info: CloseInfo) -> None:
            if self._connection is connection:  # otherwise disconnect() was called
                options.on_closed(info)

        receiver = _Receiver(options)
        connection = WebSocketConnection(
            sock,
            runtime.io,
            on_messages=receiver.receive,
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

    def send_ready_message(self) -> None:
        """Start to read, and send `client-ready`.

        Messages that were read in `connect()` would be delivered before the event `connected`.
        """
        with self._lock:
            connection, leftover, self._leftover = self._connection, self._leftover, None
        if connection is not None and leftover is not None:
            connection.start(leftover)
        super().send_ready_message()

    def disconnect(self) -> None:
        """Close the WebSocket.

        Raises:
            DisconnectedError: messages had not reached the server, as far as the system tells.
        """
        with self._lock:
            connection, self._connection = self._connection, None
            abort, self._abort = self._abort, None
            leftover, self._leftover = self._leftover, None
        if connection is not None:
            # Without reading, the peer's close frame would not be seen, so the close does not wait for it.
            abandoned = leftover is not None or (abort is not None and abort.aborted)
            connection.close(0.0 if abandoned else _POLITE_CLOSE_TIMEOUT, self.options.time_to_close())
            self._last_stats = stats = connection.stats()
            if stats.audio_unsent:
                # Audio is dropped instead of delayed, and the application must be able to see that.
                logger.warning(
                    "Audio was lost in this session: %.2f s were not sent because the server read too slowly",
                    stats.audio_unsent,
                )
            (messages, size), info = connection.unsent, connection.info
            if messages and not abandoned and info is not None and info.by_application:
                raise DisconnectedError(
                    f"Messages were lost, at least {messages} ({size} bytes): they had not reached the server when the "
                    "session ended. Wait for the bot's answer before you disconnect, or send less over a slow line",
                    initiator="client",
                )

    def stats(self) -> TransportStats:
        """Return the counters of the current session, or of the last one."""
        connection, receiver = self._connection, self._receiver
        return attrs.evolve(
            connection.stats() if connection is not None else self._last_stats,
            audio_received=receiver.audio if receiver is not None else 0.0,
            text_frames_ignored=receiver.text_frames if receiver is not None else 0,
        )

    def diagnosis(self) -> str | None:
        """Return which frames arrived that this transport does not read, or None."""
        receiver = self._receiver
        if receiver is not None and receiver.text_frames:
            return f"It sent {receiver.text_frames} text frames instead. {_TEXT_FRAMES}"
        if receiver is not None and receiver.undecodable:
            return f"It sent {receiver.undecodable} messages that are not Pipecat's protobuf frames; see the log."
        return None

    def start_media(self) -> None:
        """Start the sources, timed by the I/O thread.

        Sending does not block, and two threads that send would wait for each other.
        """
        self.options.media.start(self.send_audio, on_io_thread=True)

    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` as a protobuf frame."""
        frame = frames.encode_message(envelope.encode(message))
        self.check_size(len(frame), message)
        self._send(frame)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        self._send(audio_frames.encode_audio(pcm, sample_rate_hz), len(pcm) / (2 * sample_rate_hz))

    def _send(self, frame: bytes, audio: float = 0.0) -> None:
        connection = self._connection
        if connection is None:
            raise DisconnectedError("The WebSocket is not open; call connect() first", initiator="client")
        connection.send(BINARY, frame, audio)

    def after_fork_in_child(self) -> None:
        """Forget the parent's connection, and replace the lock, whose holder does not exist in the child."""
        self._lock = threading.RLock()
        self._connection = self._abort = self._leftover = None

    # -- address ------------------------------------------------------------------------------------------------------

    def _target(self, bundle: Any) -> tuple[SplitResult, dict[str, str]]:
        given = bundle if isinstance(bundle, Mapping) else {}
        own = self._ws_url if bundle is None or isinstance(bundle, Mapping) else None
        url = own or _url_in(bundle, self.bundle_source)
        if url.scheme == "ws" and self.secure_bundle and not self._allow_insecure:
            raise InvalidTransportParamsError(
                f"The connect endpoint was reached over https, but {printable(url.geturl())} is not encrypted: an "
                "attacker on the network could read and change the token and the conversation. Let the server answer "
                "with a wss:// URL, or allow it explicitly: WebSocketTransport(allow_insecure=True)"
            )
        token = self._token if self._token is not None else given.get("token")
        headers = dict(self._headers)
        if isinstance(token, str) and token:
            if self._token_in == "header":  # noqa: S105
                headers["Authorization"] = f"Bearer {token}"
            else:
                query = f"{url.query}&" if url.query else ""
                url = url._replace(query=f"{query}token={_quoted(token)}")
        return url, headers


class _Receiver:
    """The decoder of one session's WebSocket messages. Used on the I/O thread only."""

    def __init__(self, options: TransportOptions) -> None:
        self._options = options
        self._on_messages = options.on_messages
        self._receive_audio = options.media.receive_audio
        self._audio_template = audio_frames.AudioFrameTemplate()
        self.undecodable = 0
        self.text_frames = 0
        self.audio = 0.0  # seconds

    def receive(self, opcode: int, payloads: list[bytes]) -> None:
        """Deliver consecutive WebSocket messages of one kind."""
        if opcode == TEXT:
            if not self.text_frames:
                logger.warning("The bot sends text frames, which are ignored. %s", _TEXT_FRAMES)
            self.text_frames += len(payloads)
            return
        template = self._audio_template
        messages: list[Inbound] = []  # consecutive ones, delivered together
        for payload in payloads:
            match = template.match(payload) if len(payload) == template.size else None
            text = frames.match_message_frame(payload) if match is None else None
            if text is not None:
                messages.append(text)
                continue
            if messages:
                self._on_messages(messages)
                messages = []
            if match is not None:
                self.audio += template.seconds
                self._receive_audio(match[1], template.sample_rate, template.num_channels)
            else:
                self._receive_other(payload)
        if messages:
            self._on_messages(messages)

    def _receive_other(self, payload: bytes) -> None:
        try:
            kind, content = frames.decode_kind(payload)
        except ProtocolError as error:
            self.undecodable += 1
            level = logging.WARNING if self.undecodable <= _MAX_WARNINGS else logging.DEBUG
            logger.log(level, "Cannot decode a message of the server, which is skipped: %s", error)
            return
        if kind == "message":
            self._on_messages([content])
        elif kind == "audio":
            pcm, rate, channels = content
            self._audio_template.update(payload, pcm, rate, channels)
            self.audio += len(pcm) / (2 * rate * channels) if rate and channels else 0.0
            self._receive_audio(pcm, rate, channels)
        elif kind == "interruption":
            self._options.on_interruption()


def _url_in(bundle: Any, source: str) -> SplitResult:
    text = (bundle.get("ws_url") or bundle.get("wsUrl")) if isinstance(bundle, Mapping) else None
    if not isinstance(text, str):
        raise InvalidTransportParamsError(missing_url(bundle, source, "WebSocketTransport"))
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
