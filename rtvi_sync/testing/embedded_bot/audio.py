"""Audio of a conversation: utterances detected in the user's audio, and the bot's tones or echo. Pure."""

from __future__ import annotations

import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from rtvi_sync.media.pcm import rms
from rtvi_sync.media.resample import LinearResampler

# -- voice activity detection by level alone --------------------------------------------------------------------------

_WINDOW: Final = 0.01
_START_WINDOWS: Final = 5
# Kept before and after the loud part, so that soft edges of the speech are not cut off.
_MARGIN_WINDOWS: Final = 10
_PROGRESS_WINDOWS: Final = 50


@attrs.frozen
class SpeechStarted:
    """The user started to speak."""


@attrs.frozen
class SpeechContinues:
    """The user is still speaking; repeated twice a second.

    Attributes:
        duration: Seconds since the user started.
    """

    duration: float


@attrs.frozen(kw_only=True)
class Utterance:
    """The complete audio of one utterance of the user.

    Attributes:
        pcm: Signed 16-bit little-endian samples, mono; a bit-exact slice of the received audio.
        sample_rate: Sample rate in hertz.
    """

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate: int

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return len(self.pcm) / 2 / self.sample_rate


SpeechEvent: TypeAlias = SpeechStarted | SpeechContinues | Utterance


class SpeechDetector:
    """A detector of utterances in PCM. It counts time in samples, so a burst and real time give the same result.

    Not thread-safe.

    Args:
        threshold: RMS level, of 32768, from which 10 ms of audio count as loud.
        hangover: Seconds of silence that end an utterance.
        max_speech: Longest utterance in seconds.
    """

    def __init__(self, *, threshold: float, hangover: float, max_speech: float = 60.0) -> None:
        self._threshold = threshold
        self._quiet_limit = round(hangover / _WINDOW)
        self._length_limit = round(max_speech / _WINDOW)
        self._recent: deque[bytes] = deque(maxlen=_START_WINDOWS + _MARGIN_WINDOWS)
        self._speech: list[bytes] = []
        self._pending = bytearray()
        self._sample_rate = 0
        self._loud_run = 0
        self._quiet_run = 0

    @property
    def speaking(self) -> bool:
        """True between a `SpeechStarted` and its `Utterance`."""
        return bool(self._speech)

    def feed(self, pcm: bytes, sample_rate: int) -> Iterator[SpeechEvent]:
        """Process PCM (signed 16-bit little-endian, mono) and yield its events. A new rate ends the utterance."""
        if sample_rate != self._sample_rate:
            if self.speaking:
                yield self.end()
            self._sample_rate = sample_rate
            self._recent.clear()
            self._pending.clear()
            self._loud_run = 0
        self._pending += pcm
        size = 2 * max(1, round(sample_rate * _WINDOW))
        while len(self._pending) >= size:
            window = bytes(self._pending[:size])
            del self._pending[:size]
            loud = rms(window) >= self._threshold
            yield from self._continue_speech(window, loud) if self.speaking else self._listen(window, loud)

    def end(self) -> Utterance:
        """End the current utterance now and return it."""
        if not self._quiet_run:
            self._speech.append(bytes(self._pending))
        self._pending.clear()
        return self._finish()

    def _listen(self, window: bytes, loud: bool) -> Iterator[SpeechEvent]:
        self._recent.append(window)
        self._loud_run = self._loud_run + 1 if loud else 0
        if self._loud_run >= _START_WINDOWS:
            self._speech = list(self._recent)
            self._recent.clear()
            self._loud_run = self._quiet_run = 0
            yield SpeechStarted()

    def _continue_speech(self, window: bytes, loud: bool) -> Iterator[SpeechEvent]:
        self._speech.append(window)
        self._quiet_run = 0 if loud else self._quiet_run + 1
        if self._quiet_run >= self._quiet_limit or len(self._speech) >= self._length_limit:
            yield self._finish()
        elif len(self._speech) % _PROGRESS_WINDOWS == 0:
            yield SpeechContinues(len(self._speech) * _WINDOW)

    def _finish(self) -> Utterance:
        spare = max(0, self._quiet_run - _MARGIN_WINDOWS)
        pcm = b"".join(self._speech[: len(self._speech) - spare])
        self._speech = []
        self._quiet_run = 0
        return Utterance(pcm=pcm, sample_rate=self._sample_rate)


# -- the bot's audio --------------------------------------------------------------------------------------------------

# A pentatonic scale over A3. Any sequence of its tones is consonant.
_PITCHES_HZ: Final = tuple(220.0 * 2 ** (step / 12) for step in (0, 2, 4, 7, 9, 12, 14, 16))
_LOUDNESS: Final = 6000
_EDGE: Final = 0.02
_GAP: Final = 0.06


@attrs.frozen(kw_only=True)
class ReplyAudio:
    """The audio of a reply.

    Attributes:
        pcm: Signed 16-bit little-endian samples, mono.
        sample_rate: Sample rate in hertz.
        word_starts: Start of each word, in seconds from the start of the audio.
    """

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate: int
    word_starts: tuple[float, ...]


def echo(utterance: Utterance, words: Sequence[str], sample_rate: int) -> ReplyAudio:
    """Return the audio of `utterance` as the speech of `words`, bit exact unless `sample_rate` differs."""
    pcm = utterance.pcm
    if sample_rate != utterance.sample_rate:
        # Linear even with soxr installed, so that the echo is the same on every machine.
        resampler = LinearResampler(utterance.sample_rate, sample_rate)
        pcm = resampler.convert(pcm) + resampler.finish()
    pace = utterance.duration / max(1, len(words))
    return ReplyAudio(pcm=pcm, sample_rate=sample_rate, word_starts=tuple(index * pace for index in range(len(words))))


def tones(words: Sequence[str], sample_rate: int) -> ReplyAudio:
    """Return one tone for each word. The same word has the same tone; a longer word has a longer one."""
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
