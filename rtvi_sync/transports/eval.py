"""The eval transport: RTVI and audio in JSON, over the WebSocket that Pipecat's bots have for tests."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult

from ..concurrency.abort import AbortSignal
from ..errors import ProtocolError
from ..media.pcm import checked_audio
from ..messages import RTVIMessage
from ..protocol import envelope, eval_messages
from ..protocol.eval_messages import ReportLevel
from ..protocol.validation import BOOL, MAPPING, PATH, list_of, mapping_of, one_of
from .base import Inbound, TransportOptions
from .websocket_base import WebSocketBase, WebSocketReceiver
from .websocket_frames import TEXT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .websocket_base import WebSocketOptions

_PROTOBUF_ROUTE = re.compile(r"/ws-client(?=/|$)")

_LEVELS = mapping_of(one_of(*eval_messages.LEVELS))
_MESSAGES = list_of(MAPPING, "a list of messages (mappings)")


class JSONReceiver(WebSocketReceiver):
    """The decoder of JSON text."""

    opcode: ClassVar[int] = TEXT
    advice: ClassVar[str] = (
        "A bot with a protobuf serializer sends such frames, and this transport needs JSON. "
        "Use WebSocketTransport, or the bot's eval route (/ws)."
    )

    def __init__(self, options: TransportOptions) -> None:
        super().__init__(options)
        self._audio_reader = eval_messages.BotAudioReader()

    def receive(self, payloads: Sequence[bytes]) -> None:
        """Deliver consecutive text messages."""
        messages: list[Inbound] = []  # consecutive ones, delivered together
        for payload in payloads:
            try:
                audio = self._audio_reader.read(payload) if eval_messages.may_be_bot_audio(payload) else None
            except ProtocolError as error:
                self.refuse(error)
                continue
            if audio is None:
                messages.append(payload.decode())
                continue
            if messages:
                self._on_messages(messages)
                messages = []
            pcm, rate = audio
            self.deliver_audio(pcm, rate, 1)
        if messages:
            self._on_messages(messages)


class EvalTransport(WebSocketBase):
    """A connection to the eval route of a Pipecat bot. Carries audio both ways, no video.

    Every runner of Pipecat since 1.13 serves this route at ``/ws``, Pipecat Cloud included, to bots whose
    `transport_params` have the entry ``eval``, as nearly all of Pipecat's examples do. Pipecat 1.5 to 1.12 serves it to
    them if it was started with ``-t eval``, at any path. It is a bot's front door for tests: its client may set the
    model's context and see every function call.

    Args:
        ws_url, token, headers: As in `WebSocketTransport`.
        skip_tts: True asks the bot to answer in text only.
        capture_bot_audio: True asks the bot to send its voice. None: asks for it if the client has a track for it and
            is not text-only.
        capture_bot_images: True asks the bot to report the size and format, not the pixels, of each image that it
            shows, as the event `unknown_message` with the type ``eval-bot-image``.
        options: The other arguments of `WebSocketTransport`, with the same defaults. `max_message_size` counts the
            bytes of the JSON text.
    """

    name = "eval"
    needs = (
        "A bot of Pipecat's runner needs the entry 'eval' in its transport_params. Up to Pipecat 1.12 "
        "it needs to be started with -t eval, too"
    )
    start_name = "websocket"  # Pipecat's servers have no separate name for the route
    receiver_class: ClassVar[type[WebSocketReceiver]] = JSONReceiver

    def __init__(
        self,
        ws_url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        skip_tts: bool = False,
        capture_bot_audio: bool | None = None,
        capture_bot_images: bool = False,
        **options: Unpack[WebSocketOptions],
    ) -> None:
        BOOL.check(skip_tts=skip_tts, capture_bot_images=capture_bot_images)
        BOOL.or_none.check(capture_bot_audio=capture_bot_audio)
        super().__init__(ws_url, token, headers, **options)
        self._skip_tts = skip_tts
        self._capture_bot_audio = capture_bot_audio
        self._capture_bot_images = capture_bot_images

    @property
    def captures_bot_images(self) -> bool:
        """True if the bot reports the images that it shows."""
        return self._capture_bot_images

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the WebSocket, send the flags that identify this route, and continue as `WebSocketTransport`."""
        super().connect(auth_bundle, abort)
        self._send_first(eval_messages.control_message("eval-connect", self._flags()))

    def _target(self, bundle: Any) -> tuple[SplitResult, dict[str, str]]:
        """Return the address, and the headers of the handshake."""
        url, headers = super()._target(bundle)
        # Pipecat 1.5 to 1.12 reads the flags here. Up to 1.8 it hears no user without the last of them.
        tracks = self.tracks()
        has_audio = tracks.local.audio is not None or tracks.bot.audio is not None
        flags = {**self._flags(), "user_audio": has_audio and not self.options.text_only}
        query = [url.query, *(f"{name}=true" for name, wanted in flags.items() if wanted)]
        # Pipecat's runner names its protobuf route. This route is next to it, and takes the same token.
        path = _PROTOBUF_ROUTE.sub("/ws", url.path)
        return url._replace(path=path, query="&".join(filter(None, query))), headers

    def _flags(self) -> dict[str, bool]:
        """Return this session's flags for the bot, by their names on the wire."""
        audio = self._capture_bot_audio
        if audio is None:
            audio = self.tracks().bot.audio is not None and not self.options.text_only
        return {
            "skip_tts": self._skip_tts,
            "capture_bot_audio": audio,
            "capture_bot_images": self._capture_bot_images,
        }

    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` as JSON text."""
        text = envelope.encode(message)
        self.check_size(len(text), message)
        self._send(text)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        pcm = checked_audio(pcm, sample_rate_hz)
        self._send(eval_messages.encode_audio(pcm, sample_rate_hz), len(pcm) / (2 * sample_rate_hz))

    # -- control of the bot: for tests, any thread --------------------------------------------------------------------

    def configure(
        self,
        function_call_report_level: ReportLevel | Mapping[str, ReportLevel] | None = None,
        *,
        vad_user_speaking: bool | None = None,
        llm_markers: bool | None = None,
    ) -> None:
        """Change the bot's reports for this session. The bot does not answer. None leaves a setting as it is.

        Args:
            function_call_report_level: Detail of the reports of function calls: "disabled", "none" (only the ids),
                "name", "arguments", or "full" (with the result). A mapping has the levels by function name, with "*"
                for all others.
            vad_user_speaking: True to report when the bot's VAD hears the user.
            llm_markers: True to report the markers in the model's text.

        Raises:
            DisconnectedError: There is no connection, or it was lost; so for all methods below.
        """
        levels = function_call_report_level
        if isinstance(levels, str):
            levels = {"*": levels}
        _LEVELS.or_none.check(function_call_report_level=levels)
        BOOL.or_none.check(vad_user_speaking=vad_user_speaking, llm_markers=llm_markers)
        given = {
            "function_call_report_level": dict(levels) if levels is not None else None,
            "vad_user_speaking": vad_user_speaking,
            "llm_markers": llm_markers,
        }
        self._control("eval-configure", {name: value for name, value in given.items() if value is not None})

    def seed_context(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Replace the context of the bot's language model by `messages`, without running it. The bot does not answer.

        Args:
            messages: Messages in the form of the bot's model, usually with ``role`` and ``content``.
        """
        _MESSAGES.check(messages=messages)
        self._control("eval-context", {"messages": [dict(message) for message in messages]})

    def set_user_image(self, path: str | os.PathLike[str]) -> None:
        """Set the picture that the bot gets whenever it asks for one of the user's camera, until the next call.

        Args:
            path: An image file in a format that Pillow reads, such as JPEG or PNG.

        Raises:
            OSError: The file cannot be read.
            MessageTooLargeError: It does not fit into `max_message_size`: in base64 it takes a third more.
        """
        import mimetypes  # imported late: it reads the system's tables

        PATH.check(path=path)
        with Path(path).open("rb") as opened:
            content = opened.read(self.max_message_size + 1)  # more cannot be sent
        image_format = mimetypes.guess_type(Path(path).name)[0] or "image/jpeg"
        self._control("eval-image", {"image": base64.b64encode(content).decode("ascii"), "format": image_format})

    def cancel(self) -> None:
        """Cancel the bot's pipeline, which ends the session; `RTVIClient.disconnect_bot()` lets the bot finish."""
        self._control("eval-cancel", {})

    def _control(self, kind: str, data: Mapping[str, Any]) -> None:
        self.send_message(eval_messages.control_message(kind, data))
