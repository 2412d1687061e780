"""The WebSocket transport: RTVI and audio in the protobuf frames of Pipecat's bots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..errors import ProtocolError
from ..media.pcm import checked_audio
from ..messages import RTVIMessage
from ..protocol import audio_frames, envelope, wire
from .base import Inbound, TransportOptions
from .websocket_base import WebSocketBase, WebSocketReceiver
from .websocket_frames import BINARY


class ProtobufReceiver(WebSocketReceiver):
    """The decoder of protobuf frames."""

    opcode: ClassVar[int] = BINARY
    advice: ClassVar[str] = (
        "A bot with a JSON serializer sends such frames, and this transport needs protobuf. "
        "Give the bot's transport a ProtobufFrameSerializer."
    )

    audio: float  # again, because pyright does not infer it where only `+=` stands

    def __init__(self, options: TransportOptions) -> None:
        super().__init__(options)
        self._template = audio_frames.AudioFrameTemplate()

    def receive(self, payloads: Sequence[bytes]) -> None:
        """Deliver consecutive binary messages."""
        template = self._template
        messages: list[Inbound] = []  # consecutive ones, delivered together
        for payload in payloads:
            match = template.match(payload) if len(payload) == template.size else None
            text = wire.match_message_frame(payload) if match is None else None
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
        """Deliver an interruption, or a frame in an unusual form."""
        try:
            kind, fields = wire.read_frame(payload)
        except ProtocolError as error:
            self.refuse(error)
            return
        if kind == "message":
            self._on_messages([fields["data"]])
        elif kind == "audio":
            pcm, rate, channels = fields["audio"], fields["sample_rate"], fields["num_channels"]
            self._template.update(payload, pcm, rate, channels)
            self.deliver_audio(pcm, rate, channels)
        elif kind == "interruption":
            self._options.on_interruption()

    def diagnosis(self) -> str | None:
        """Return a description of the received messages that are no protobuf frames, or None."""
        if self.undecodable and not self.ignored:
            return f"It sent {self.undecodable} messages that are not Pipecat's protobuf frames; see the log."
        return super().diagnosis()


class WebSocketTransport(WebSocketBase):
    """A connection to a bot over WebSocket. Carries audio both ways, no video.

    Args:
        ws_url: The bot's address, ``ws://`` or ``wss://``. It takes precedence over the ``ws_url`` or ``wsUrl`` in the
            connect endpoint's answer. None: the address in the answer.
        token: Token for the server, sent as `token_in` states. It takes precedence over the answer's ``token``.
        headers: Headers of the handshake. (`params.headers` are never sent.)
        token_in: "query" appends ``?token=`` to the URL, as the JavaScript client does; "header" sends
            ``Authorization: Bearer``.
        allow_insecure: True to accept ``ws://`` even if the connect endpoint was reached over ``https://``. The token
            and the conversation are then sent in plain text.
        max_message_size (bytes): Largest serialized frame that is sent.
        max_inbound_message_size (bytes): Largest message that is received. A larger one ends the session.
        stall_timeout (seconds): Time after which a server that reads nothing ends the session. None: no limit.
        ping_interval (seconds): Silence of the server before a ping is sent. None: no pings.
        ping_timeout (seconds): Silence of the server after a ping that ends the session. None: no limit; pings then
            keep the connection open and measure the round trip, but never end the session.
    """

    name = "websocket"
    needs = (
        "A bot of Pipecat's runner needs the entry 'websocket' in its transport_params. Without it, "
        "transport='eval' may reach it"
    )
    receiver_class: ClassVar[type[WebSocketReceiver]] = ProtobufReceiver

    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` as a protobuf frame."""
        frame = wire.encode_message(envelope.encode(message))
        self.check_size(len(frame), message)
        self._send(frame)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        pcm = checked_audio(pcm, sample_rate_hz)
        self._send(audio_frames.encode_audio(pcm, sample_rate_hz), len(pcm) / (2 * sample_rate_hz))
