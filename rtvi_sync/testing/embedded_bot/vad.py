"""Voice activity detection by level alone. Pure: no thread, socket or clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

import attrs

from rtvi_sync.media.pcm import rms

_WINDOW: Final = 0.01
_START_WINDOWS: Final = 5
# Kept before and after the loud part, so that its soft beginning and end are not cut off.
_MARGIN_WINDOWS: Final = 10
_PROGRESS_WINDOWS: Final = 50


@attrs.frozen
class SpeechStarted:
    """The user began to speak."""


@attrs.frozen
class SpeechContinues:
    """The user is still speaking; repeated twice a second.

    Attributes:
        duration: seconds since the user began.
    """

    duration: float


@attrs.frozen(kw_only=True)
class Utterance:
    """The audio of one utterance of the user, from its beginning to its end.

    Attributes:
        pcm: signed 16 bit, little endian, mono; a slice of the received audio, bit exact.
        sample_rate: samples per second.
    """

    pcm: bytes = attrs.field(repr=lambda pcm: f"<{len(pcm)} bytes>")
    sample_rate: int

    @property
    def duration(self) -> float:
        """Return the length in seconds."""
        return len(self.pcm) / 2 / self.sample_rate


SpeechEvent: TypeAlias = SpeechStarted | SpeechContinues | Utterance


class SpeechDetector:
    """Detector of utterances in PCM. Time is counted in samples, so a burst and real time give the same result.

    Not for two threads.

    Args:
        threshold: RMS, of 32768, from which 10 ms of audio count as loud.
        hangover: seconds of silence that end an utterance.
        max_speech: seconds after which an utterance is ended in any case.
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
        """Return whether a `SpeechStarted` has come and its `Utterance` has not."""
        return bool(self._speech)

    def feed(self, pcm: bytes, sample_rate: int) -> Iterator[SpeechEvent]:
        """Process PCM (signed 16 bit, little endian, mono) and yield its events. A new rate ends the utterance."""
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
