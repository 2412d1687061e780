"""The messages of Pipecat's eval route: JSON text in each WebSocket message, audio included.

All received data is untrusted, but is valid UTF-8. All functions are pure and may be called on any thread.
"""

from __future__ import annotations

import base64
import binascii
import functools
from typing import Any, Final, Literal, TypeAlias

from ..errors import ProtocolError
from . import envelope
from .message import RTVIMessage
from .text import one_line

ReportLevel: TypeAlias = Literal["disabled", "none", "name", "arguments", "full"]
"""How much bots from RTVI 1.2 on report of a function call. Each level reports more than the one before it."""

#: From the least detailed to the most detailed.
LEVELS: Final[tuple[ReportLevel, ...]] = ("disabled", "none", "name", "arguments", "full")

#: The type of the bot's audio.
BOT_AUDIO: Final = "eval-bot-audio"
_BOT_AUDIO_MARK: Final = BOT_AUDIO.encode()
# Bots don't answer audio messages. The id is only there because they require one.
_AUDIO_ID: Final = "audio"


def control_message(kind: str, data: Any) -> RTVIMessage:
    """Return a message to the eval route itself, which no bot sees: ``eval-connect``, ``eval-context`` and so on."""
    return RTVIMessage("client-message", {"t": kind, "d": data}, kind)


def encode_audio(pcm: bytes, sample_rate_hz: int) -> bytes:
    """Return the JSON text of the user's audio, one channel."""
    head, tail = _around_audio(sample_rate_hz)
    return b"".join((head, base64.b64encode(pcm), tail))


@functools.lru_cache(maxsize=64)
def _around_audio(sample_rate_hz: int) -> tuple[bytes, bytes]:
    data = {"base64Audio": "", "sampleRate": sample_rate_hz, "numChannels": 1}
    text = envelope.encode(RTVIMessage("raw-audio", data, _AUDIO_ID))
    end = text.index(b'"base64Audio":"') + len(b'"base64Audio":"')
    return text[:end], text[end:]


def may_be_bot_audio(text: bytes) -> bool:
    """Return whether `BotAudioReader.read()` may find audio in a message. False: there is none."""
    return _BOT_AUDIO_MARK in text


class BotAudioReader:
    """A reader of the bot's audio messages, which differ only in their samples. Used by one thread.

    The reader keeps the text around the samples of one message, so that only the samples of the next must be decoded.
    """

    def __init__(self) -> None:
        self._head = self._tail = b"\0"  # in no JSON text
        self._rate = 0

    def read(self, text: bytes) -> tuple[bytes, int] | None:
        """Return the PCM and the sample rate. None if it is another message.

        Raises:
            ProtocolError: The message has no valid samples, or no sample rate.
        """
        head, tail = self._head, self._tail
        if text.startswith(head) and text.endswith(tail):
            try:
                # Validation makes this safe: a quote, which could end the string, is not a base64 character.
                return base64.b64decode(text[len(head) : len(text) - len(tail)], validate=True), self._rate
            except binascii.Error:
                pass
        return self._read_any(text)

    def _read_any(self, text: bytes) -> tuple[bytes, int] | None:
        found = _samples_and_rate(text)
        if found is None:
            return None
        samples, rate = found
        try:
            pcm = base64.b64decode(samples, validate=True)
        except ValueError as error:  # binascii.Error, or characters that are not ASCII
            raise ProtocolError(f"The audio of {BOT_AUDIO} is not base64: {one_line(str(error))}") from None
        head, _, tail = text.partition(b'"%b"' % samples.encode())
        # The text of another member may equal the samples. Then its place would be taken for the place of the samples.
        if samples and _samples_and_rate(b'%b""%b' % (head, tail)) == ("", rate):
            self._head, self._tail, self._rate = head + b'"', b'"' + tail, rate
        return pcm, rate


def _samples_and_rate(text: bytes) -> tuple[str, int] | None:
    """Return the samples, in base64, and the sample rate of an audio message. None if it is another message."""
    try:
        kind, data, _ = envelope.parse_text(text.decode())
    except ProtocolError:
        return None  # the event layer reports it
    if kind != BOT_AUDIO:
        return None
    samples, rate = (data.get("audio"), data.get("sampleRate")) if isinstance(data, dict) else (None, None)
    if not isinstance(samples, str) or type(rate) is not int:
        raise ProtocolError(f"{BOT_AUDIO} has no audio that is a string, or no sampleRate that is a whole number")
    return samples, rate
