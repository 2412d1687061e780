"""Audio of the embedded bot's replies: the user's own voice, or a tone for each word. Pure."""

from __future__ import annotations

import math
import zlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import attrs

from rtvi_sync.media.resample import LinearResampler
from rtvi_sync.testing.embedded_bot.vad import Utterance

# A pentatonic scale over A3, in which any sequence of tones is consonant.
_PITCHES_HZ: Final = tuple(220.0 * 2 ** (step / 12) for step in (0, 2, 4, 7, 9, 12, 14, 16))
_LOUDNESS: Final = 6000
_EDGE: Final = 0.02
_GAP: Final = 0.06


@attrs.frozen(kw_only=True)
class ReplyAudio:
    """The audio of a reply.

    Attributes:
        pcm: signed 16 bit, little endian, mono.
        sample_rate: samples per second.
        word_starts: seconds from the beginning at which each word of the reply begins.
    """

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate: int
    word_starts: tuple[float, ...]


def echo(utterance: Utterance, words: Sequence[str], sample_rate: int) -> ReplyAudio:
    """Return the audio of `utterance` as that of `words`, bit exact unless `sample_rate` differs from the user's."""
    pcm = utterance.pcm
    if sample_rate != utterance.sample_rate:
        # Linear even if soxr is installed, so that the echo is the same on every machine.
        resampler = LinearResampler(utterance.sample_rate, sample_rate)
        pcm = resampler.convert(pcm) + resampler.finish()
    pace = utterance.duration / max(1, len(words))
    return ReplyAudio(pcm=pcm, sample_rate=sample_rate, word_starts=tuple(index * pace for index in range(len(words))))


def tones(words: Sequence[str], sample_rate: int) -> ReplyAudio:
    """Return a tone for each of `words`: the same tone for the same word, a longer one for a longer word."""
    parts: list[bytes] = []
    starts: list[float] = []
    size = 0
    for word in words:
        part = _tone(word, sample_rate)
        starts.append(size / 2 / sample_rate)
        parts.append(part)
        size += len(part)
    return ReplyAudio(pcm=b"".join(parts), sample_rate=sample_rate, word_starts=tuple(starts))


@lru_cache(maxsize=256)
def _tone(word: str, sample_rate: int) -> bytes:
    pitch = _PITCHES_HZ[zlib.crc32(word.lower().encode("utf-8", "replace")) % len(_PITCHES_HZ)]
    seconds = min(0.45, 0.14 + 0.03 * len(word))
    count, edge = int(seconds * sample_rate), _EDGE * sample_rate
    step = 2 * math.pi * pitch / sample_rate
    samples = array("h", bytes(2 * (count + int(_GAP * sample_rate))))
    for index in range(count):
        nearest_end = min(index, count - 1 - index)
        swell = math.sin(math.pi / 2 * min(1.0, nearest_end / edge)) ** 2
        timbre = math.sin(step * index) + 0.3 * math.sin(2 * step * index)
        samples[index] = int(_LOUDNESS * swell * timbre)
    return samples.tobytes()
