"""The WebSocket transport: RTVI and audio as protobuf frames, as Pipecat's bots speak them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import SplitResult, quote, urlsplit

from websocket import ABNF

from ..concurrency.cancel import AbortSignal
from ..concurrency.lifecycle import log_stack_of
from ..errors import DisconnectedError, InvalidTransportParamsError, ProtocolError
from ..media import Tracks
from ..media.manager import MediaManager
from ..messages import RTVIMessage
from ..protocol import envelope, frames
from .base import Transport, TransportOptions
from .websocket_connection import WebSocketConnection
from .websocket_handshake import open_websocket

logger = logging.getLogger(__name__)

# A bot answers a close frame within milliseconds; one that does not has hung.
_POLITE_CLOSE_TIMEOUT = 1.0
# What was received and not played yet is played to the end, at most so long.
_FLUSH_TIMEOUT = 1.0


class WebSocketTransport(Transport):
    """Connects to a bot over WebSocket. Carries audio both ways, no video.

    Args:
        ws_url: where the bot listens, ``ws://`` or ``wss://``; it wins over the ``ws_url`` or ``wsUrl`` that the
            connect endpoint answers with. None: take that one.
        token: goes to the server as `token_in` says; it wins over the answer's ``token``.
        headers: sent with the handshake. (`params.headers` never are.)
        token_in: "query" appends ``?token=`` to the URL, as the JavaScript client does; "header" sends
            ``Authorization: Bearer``.
        max_message_size: largest serialized frame that is sent, in bytes.
        max_inbound_message_size: largest message that is received, in bytes; a larger one ends the session.
        stall_timeout: seconds after which a server that reads nothing ends the session.
    """

    name = "websocket"

    def __init__(
        self,
        ws_url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        token_in: Literal["query", "header"] = "query",  # noqa: S107 - a place, not a token
        max_message_size: int = 1_048_576,
        max_inbound_message_size: int = 16 * 1024 * 1024,
        stall_timeout: float = 10.0,
    ) -> None:
        if token_in not in ("query", "header"):
            raise ValueError(f'token_in is "query" or "header", not {token_in!r}')
        if ws_url is not None:
            _parse_url(ws_url)
        self._ws_url = ws_url
        self._token = token
        self._headers = dict(headers or {})
        self._token_in = token_in
        self.max_message_size = max_message_size
        self._max_inbound_message_size = max_inbound_message_size
        self._stall_timeout = stall_timeout
        self._media: MediaManager | None = None
        # Guards `_connection` and `_abort`: an attempt that was abandoned must not install its connection later.
        self._lock = threading.Lock()
        self._connection: WebSocketConnection | None = None
        self._abort: AbortSignal | None = None

    def __repr__(self) -> str:
        url = self._ws_url.partition("?")[0] if self._ws_url is not None else None
        return f"WebSocketTransport(ws_url={url!r})"

    # -- session ------------------------------------------------------------------------------------------------------

    def initialize(self, options: TransportOptions, on_message: Any) -> None:
        super().initialize(options, on_message)
        if self._media is None:
            self._media = MediaManager(mic=options.mic, speaker=options.speaker, enable_mic=options.enable_mic)
        else:
            self._media.enable_mic(options.enable_mic)

    def init_devices(self) -> None:
        self._manager.prepare(self.options.on_event)

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        url, headers = self._target(auth_bundle)
        sock, leftover, detach = open_websocket(url, headers, self.options.network, abort)
        options, on_message, manager = self.options, self.on_message, self._manager

        def receive(opcode: int, payload: bytes) -> None:
            if opcode == ABNF.OPCODE_TEXT:
                logger.debug("The server sent a text frame; RTVI over WebSocket is binary. It is skipped")
                return
            frame = frames.decode(payload)
            if isinstance(frame, frames.AudioRawFrame):
                manager.receive_audio(frame.audio, frame.sample_rate, frame.num_channels)
            elif isinstance(frame, frames.MessageFrame):
                on_message(frame.data)
            elif isinstance(frame, frames.InterruptionFrame):
                options.on_interruption()

        def receive_guarded(opcode: int, payload: bytes) -> None:
            try:
                receive(opcode, payload)
            except ProtocolError as error:
                logger.warning("A message of the server cannot be decoded and is skipped: %s", error)

        connection = WebSocketConnection(
            sock,
            options.hub.io,
            on_message=receive_guarded,
            on_closed=options.on_closed,
            max_message_bytes=self._max_inbound_message_size,
            max_queued_bytes=max(16 * 1024 * 1024, 2 * self.max_message_size),
            stall_timeout=self._stall_timeout,
        )
        with self._lock:
            abandoned = abort.aborted
            if not abandoned:
                self._connection, self._abort = connection, abort
        detach()
        if abandoned:
            sock.close()
            abort.raise_if_aborted()
        connection.start(leftover)

    def disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            abort, self._abort = self._abort, None
        manager = self._media
        if manager is not None:
            manager.pause()
        if connection is not None:
            given_up = abort is not None and abort.aborted
            connection.close(0.0 if given_up else _POLITE_CLOSE_TIMEOUT)
        if manager is not None:
            log_stack_of(manager.stop(_FLUSH_TIMEOUT), "A source or sink does not return")

    def send_message(self, message: RTVIMessage) -> None:
        frame = frames.encode(frames.MessageFrame(data=envelope.encode(message)))
        self.check_size(len(frame), message)
        self._send(frame)

    def _send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        frame = frames.encode(frames.AudioRawFrame(audio=pcm, sample_rate=sample_rate_hz, num_channels=1))
        self._send(frame, len(pcm) / (2 * sample_rate_hz))

    def _send(self, frame: bytes, audio: float = 0.0) -> None:
        connection = self._connection
        if connection is None:
            raise DisconnectedError("The WebSocket is not open; call connect() first", initiator="client")
        connection.send(ABNF.OPCODE_BINARY, frame, audio)

    # -- where to -----------------------------------------------------------------------------------------------------

    def _target(self, bundle: Any) -> tuple[SplitResult, dict[str, str]]:
        if bundle is not None and not isinstance(bundle, Mapping):
            raise InvalidTransportParamsError(
                f"The connect endpoint answered with a JSON {type(bundle).__name__}; "
                "WebSocketTransport needs an object with ws_url"
            )
        bundle = bundle or {}
        given = self._ws_url or bundle.get("ws_url") or bundle.get("wsUrl")
        if not isinstance(given, str):
            raise InvalidTransportParamsError(
                "There is no WebSocket URL: the connect endpoint's answer has neither ws_url nor wsUrl. "
                "Pass WebSocketTransport(ws_url=...), connect({'ws_url': ...}), "
                "or set params.base_url to a server that gives one."
            )
        url = _parse_url(given)
        token = self._token if self._token is not None else bundle.get("token")
        headers = dict(self._headers)
        if isinstance(token, str) and token:
            if self._token_in == "header":  # noqa: S105
                headers["Authorization"] = f"Bearer {token}"
            else:
                query = f"{url.query}&" if url.query else ""
                url = url._replace(query=f"{query}token={quote(token, safe='')}")
        return url, headers

    # -- media --------------------------------------------------------------------------------------------------------

    @property
    def _manager(self) -> MediaManager:
        assert self._media is not None, "initialize() comes first"
        return self._media

    def start_media(self) -> None:
        self._manager.start(self.options.hub.pacer, self._send_audio)

    def interrupt_playback(self) -> None:
        self._manager.interrupt()

    def tracks(self) -> Tracks:
        return self._media.tracks() if self._media is not None else Tracks()

    def enable_mic(self, enable: bool) -> None:
        self._manager.enable_mic(enable)

    @property
    def is_mic_enabled(self) -> bool:
        return self._media is not None and self._media.is_mic_enabled


def _parse_url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        valid = url.scheme in ("ws", "wss") and bool(url.hostname) and url.port != 0
    except ValueError:
        valid = False
    if not valid or any(c.isspace() or not c.isprintable() for c in text):
        raise InvalidTransportParamsError(
            "A WebSocket URL begins with ws:// or wss:// and names a host; this one does not"
        )
    return url
