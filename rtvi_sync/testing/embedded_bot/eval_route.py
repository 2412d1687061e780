"""The eval route of the embedded bot: JSON text in place of protobuf frames."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from rtvi_sync.protocol.eval_messages import BOT_AUDIO, LEVELS, ReportLevel
from rtvi_sync.protocol.frames import AudioRawFrame, Frame, MessageFrame
from rtvi_sync.testing.embedded_bot.script import Message, message

#: What a `client-message` of this route may hold, apart from the first one.
CONTROLS: Final = ("eval-connect", "eval-configure", "eval-context", "eval-image", "eval-cancel")


class EvalRoute:
    """The encoding of one session of the eval route.

    Args:
        flags: the client's, from its first message.
    """

    def __init__(self, flags: Message) -> None:
        self.flags: Final = flags
        self._report_levels: Mapping[str, ReportLevel] | None = None

    def configure(self, data: Message) -> None:
        """Take the levels in the client's `eval-configure`, if it has any."""
        levels = data.get("function_call_report_level")
        if isinstance(levels, dict):
            self._report_levels = {name: level for name, level in levels.items() if level in LEVELS}

    def report_level(self, function: str, bots_own: ReportLevel) -> ReportLevel:
        """Return how much is reported of calls of a function: the client's level, else the bot's own."""
        levels = self._report_levels
        return bots_own if levels is None else levels.get(function, levels.get("*", "none"))

    def encode(self, frame: Frame) -> str | None:
        """Return the text that is sent for a frame, or None if nothing is."""
        if isinstance(frame, MessageFrame):
            return frame.data
        if isinstance(frame, AudioRawFrame) and self.flags.get("capture_bot_audio"):
            audio = base64.b64encode(frame.audio).decode("ascii")
            return json.dumps(message(BOT_AUDIO, {"audio": audio, "sampleRate": frame.sample_rate}))
        return None

    def decode(self, data: bytes | str) -> Frame:
        """Return the frame in a message of the client: audio, or a message."""
        text = data if isinstance(data, str) else data.decode(errors="replace")
        received = parse(text)
        if isinstance(received, dict) and received.get("type") == "raw-audio":
            try:
                audio = received["data"]
                pcm = base64.b64decode(audio["base64Audio"], validate=True)
                return AudioRawFrame(audio=pcm, sample_rate=audio["sampleRate"], num_channels=audio["numChannels"])
            except (KeyError, TypeError, binascii.Error):
                pass  # the handler of the message refuses it
        return MessageFrame(data=text)


def open_eval_route(data: bytes | str) -> EvalRoute | None:
    """Return the route if this first message of a client is its `eval-connect`; None: the client sends protobuf."""
    received: Any = parse(data) if isinstance(data, str) else None
    if control_of(received) != "eval-connect":
        return None
    flags = received["data"].get("d")
    return EvalRoute(flags if isinstance(flags, dict) else {})


def control_of(received: Any) -> str | None:
    """Return which control of the route a message is, or None if it is for the bot."""
    if not isinstance(received, dict) or received.get("type") != "client-message":
        return None
    data = received.get("data")
    kind = data.get("t") if isinstance(data, dict) else None
    return kind if kind in CONTROLS else None


def parse(text: str) -> Any:
    """Decode the JSON of a message; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
