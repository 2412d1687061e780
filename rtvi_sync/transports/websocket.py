"""The WebSocket transport: RTVI and audio in the protobuf frames of Pipecat's bots."""

from __future__ import annotations

from typing import Any

from ..concurrency.abort import AbortSignal
from ..messages import RTVIMessage
from ..protocol import audio_frames, envelope, frames
from .base import TransportOptions
from .websocket_base import WebSocketBase, WebSocketReceiver
from .websocket_frames import BINARY


class ProtobufReceiver(WebSocketReceiver):
    """The decoder of protobuf frames."""

    opcode = BINARY
    advice = (
        "A bot with a JSON serializer sends such frames, and this transport needs protobuf. "
        "Give the bot's transport a ProtobufFrameSerializer."
    )
    text_of = staticmethod(frames.match_message_frame)

    def __init__(self, options: TransportOptions) -> None:
        super().__init__(options)
        self._template = audio_frames.AudioFrameTemplate()

    def receive_other(self, payload: bytes) -> None:
        """Deliver an audio frame or an interruption, or a message frame in an unusual form."""
        template = self._template
        match = template.match(payload) if len(payload) == template.size else None
        if match is not None:
            self.audio += template.seconds
            self._receive_audio(match[1], template.sample_rate, template.num_channels)
            return
        kind, content = frames.decode_kind(payload)
        if kind == "message":
            self._on_messages([content])
        elif kind == "audio":
            pcm, rate, channels = content
            template.update(payload, pcm, rate, channels)
            self.audio += len(pcm) / (2 * rate * channels) if rate and channels else 0.0
            self._receive_audio(pcm, rate, channels)
        elif kind == "interruption":
            self._options.on_interruption()

    def diagnosis(self) -> str | None:
        """Return what came that is no protobuf frame, or None."""
        if self.undecodable and not self.ignored:
            return f"It sent {self.undecodable} messages that are not Pipecat's protobuf frames; see the log."
        return super().diagnosis()


class WebSocketTransport(WebSocketBase):
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
    receiver_class = ProtobufReceiver

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the WebSocket. The bot's messages are read from `send_ready_message()` on."""
        frames.load()
        super().connect(auth_bundle, abort)

    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` as a protobuf frame."""
        frame = frames.encode_message(envelope.encode(message))
        self.check_size(len(frame), message)
        self._send(frame)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        self._send(audio_frames.encode_audio(pcm, sample_rate_hz), len(pcm) / (2 * sample_rate_hz))
