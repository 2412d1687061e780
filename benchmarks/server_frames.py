"""The WebSocket frames that the server sends: messages, audio, and the answer of a bot."""

from __future__ import annotations

import itertools
import json
import re
import struct
import time
from collections.abc import Iterator
from typing import Any, Final

#: Bytes of an audio frame: 20 ms of 16-bit mono.
FRAME_BYTES: Final = 640
SAMPLE_RATE_HZ: Final = 16_000
FRAMES_PER_SECOND: Final = 50

#: The answer to a text.
ANSWER_TEXT: Final = "Well, let me see: the sun will shine in the whole country tomorrow."
#: Messages and audio frames of it, a second: faster than speech, and slow enough that a client waits for each.
ANSWER_RATE: Final = 500

# The first byte of a serialized frame: the field number of its kind, length-delimited.
AUDIO_KIND: Final = 0x12
_MESSAGE_KIND: Final = 0x22
BINARY_OPCODE: Final = 0x82


def _varint(number: int) -> bytes:
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def _field(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + _varint(len(data)) + data


def framed(payload: bytes, first: int = BINARY_OPCODE) -> bytes:
    """Return an unmasked WebSocket frame, as servers send it."""
    size = len(payload)
    if size < 126:
        return bytes([first, size]) + payload
    if size < 1 << 16:
        return bytes([first, 126]) + size.to_bytes(2, "big") + payload
    return bytes([first, 127]) + size.to_bytes(8, "big") + payload


def message_frame(type: str, data: Any, id: str | None = None) -> bytes:
    """Return the frame of an RTVI message."""
    message = {"label": "rtvi-ai", "type": type, "data": data, **({"id": id} if id is not None else {})}
    return framed(_field(_MESSAGE_KIND, _field(0x0A, json.dumps(message).encode())))


def _stamp() -> bytes:
    return b"%020.9f" % time.monotonic()


_EVENT_BEFORE, _, _EVENT_AFTER = message_frame(
    "user-transcription",
    {"text": "What is the weather like tomorrow?", "final": False, "timestamp": "@" * 20, "user_id": "user"},
).partition(b"@" * 20)


def _square_wave(level: int) -> bytes:
    """Return 20 ms that no client mistakes for silence."""
    return struct.pack("<40h", *[level] * 20, *[-level] * 20) * (FRAME_BYTES // 80)


def _audio_frame(number: int, pcm: bytes) -> bytes:
    """Return an audio frame as a bot sends it: with an id, and a name that has a number."""
    about = b"\x08" + _varint(number) + _field(0x12, b"OutputAudioRawFrame#%d" % number)
    return framed(
        _field(AUDIO_KIND, about + _field(0x1A, pcm) + b"\x20" + _varint(SAMPLE_RATE_HZ) + b"\x28" + _varint(1))
    )


_AUDIO: Final = [_square_wave(0x1000 + number) for number in range(200)]
AUDIO_FRAMES: Final = [_audio_frame(10_000 + number, pcm) for number, pcm in enumerate(_AUDIO)]
# Each frame without its first samples, which are where the time is.
_STAMP_BYTES: Final = 8
_NEXT_CUT: Final = itertools.cycle(
    (before, pcm[_STAMP_BYTES:] + after)
    for frame, pcm in zip(AUDIO_FRAMES, _AUDIO, strict=True)
    for before, _, after in (frame.partition(pcm),)
).__next__


def audio_frame() -> bytes:
    """Return an audio frame that is sent now, whose first samples are the time of the machine's monotonic clock."""
    before, after = _NEXT_CUT()
    return before + struct.pack("<d", time.monotonic()) + after


def stamps_of(pcm: bytes) -> Iterator[float]:
    """Yield the times at which the frames of some audio were sent."""
    for place in range(0, len(pcm), FRAME_BYTES):
        yield struct.unpack_from("<d", pcm, place)[0]


def event_frame() -> bytes:
    """Return an event that is sent now."""
    return _EVENT_BEFORE + _stamp() + _EVENT_AFTER


def _writing() -> Iterator[bytes]:
    """Yield the model's words."""
    yield message_frame("bot-llm-started", None)
    for word in _WORDS:
        yield message_frame("bot-llm-text", {"text": word})
    yield message_frame("bot-transcription", {"text": ANSWER_TEXT})
    yield message_frame("bot-llm-stopped", None)


def _speech() -> Iterator[bytes]:
    """Yield the speech, with all that is reported of it but its end."""
    yield message_frame("bot-tts-started", None)
    yield message_frame("bot-started-speaking", None)
    spoken = ""
    for word in _WORDS:
        spoken += word
        progress = {"accumulated_text": spoken, "remaining_text": ANSWER_TEXT[len(spoken) :]}
        status = "in-progress" if progress["remaining_text"] else "completed"
        yield message_frame("bot-tts-text", {"text": word.strip()})
        yield message_frame(
            "bot-output",
            {
                "text": ANSWER_TEXT,
                "aggregated_by": "sentence",
                "segment_id": 1,
                "will_be_spoken": True,
                "spoken_status": status,
                "spoken_progress": progress,
            },
        )
        yield from _WORD
    yield message_frame("bot-tts-stopped", None)


# 0.2 s in frames of 40 ms, as Pipecat sends them unless it is told otherwise.
_WORD: Final = [_audio_frame(number, 2 * _AUDIO[0]) for number in range(10_000, 10_005)]
_WORDS: Final = re.findall(r"\s*\S+", ANSWER_TEXT)
_ANSWER: Final = [*_writing(), *_speech()]
END_OF_ANSWER: Final = message_frame("bot-stopped-speaking", None)


def answer_frames(question: str) -> list[bytes]:
    """Return the answer to a text, as bots of RTVI 2.0 send it, but for its end."""
    return [message_frame("bot-interrupted", None), message_frame("user-llm-text", {"text": question}), *_ANSWER]
