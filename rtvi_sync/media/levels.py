"""Audio levels: which of them are speech, and the meter behind `local_audio_level` and `remote_audio_level`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..events import RTVIEvent
from . import pcm as pcm_tools
from .status import AudioLevel, Publisher

#: RMS, of 32768. The noise of an A/D converter is below it, the softest speech above.
FLOOR = 30.0
# Share of the loudest frame's RMS (-28 dB) below which a frame holds breath and room noise instead of speech.
_SHARE = 0.04
#: How many windows a second of audio has.
WINDOWS_PER_SECOND = 50
# Seconds between two levels: at most 20 per second, which a meter on a screen needs.
_INTERVAL = 0.05
# After this many seconds without audio the meter publishes silence, because a silent bot sends nothing.
_SILENT_AFTER = 0.25
# At most this much of each frame, and this many frames, are measured, because the I/O thread must not be kept busy by
# long audio frames.
_MEASURED_BYTES = 9600
_MEASURED_FRAMES = 4
_SILENCE = AudioLevel(level=0.0, dbfs=-100.0)


def audible_windows(pcm: bytes, sample_rate_hz: int) -> tuple[list[bool], int]:
    """Return for each window, 20 ms of one voice, whether it holds speech; and the size of a window in bytes."""
    size = 2 * max(1, sample_rate_hz // WINDOWS_PER_SECOND)
    return audible([pcm_tools.rms(pcm[at : at + size]) for at in range(0, len(pcm), size)]), size


def audible(levels: Sequence[float]) -> list[bool]:
    """Return for each frame of one voice whether it holds speech, by its RMS."""
    limit = max(FLOOR, _SHARE * max(levels, default=0.0))
    return [level >= limit for level in levels]


def level_of(pcm: bytes) -> AudioLevel:
    """Return the level of samples: their root mean square."""
    level = min(1.0, pcm_tools.rms(pcm) / 32768)
    return AudioLevel(level=level, dbfs=max(-100.0, 20 * math.log10(level))) if level > 0 else _SILENCE


class LevelMeter:
    """A level meter of one direction, which measures only while the event has a listener.

    Args:
        event: event to publish.
    """

    def __init__(self, event: RTVIEvent) -> None:
        self._event = event
        self._frames: list[bytes] = []
        self._published_at = self._checked_at = -math.inf
        #: Audio before this monotonic time need not be fed, because the event had no listener at the last check.
        self.idle_until: float = -math.inf
        #: True if the last published level is above zero, so that `quiet()` may have to publish silence.
        self.loud: bool = False

    def feed(self, pcm: bytes, now: float, publisher: Publisher | None) -> bool:
        """Measure audio that is sent or received now; return whether it has become loud. Called on one thread.

        Args:
            pcm: the audio.
            now: monotonic time.
            publisher: publishes the level; None: it is not published.
        """
        due = now >= self._checked_at + _INTERVAL
        if due:
            self._checked_at = now
            wanted = publisher is not None and publisher.has_listener(self._event)
            self.idle_until = -math.inf if wanted else now + _INTERVAL
            if not wanted:
                self._frames = []  # a later listener must not get the level of old audio
        if publisher is None or now < self.idle_until:
            return False
        self._frames = [*self._frames[-_MEASURED_FRAMES + 1 :], pcm[-_MEASURED_BYTES:]]
        if not due:
            return False
        self._published_at = now
        level = level_of(b"".join(self._frames))
        self._frames = []
        was_loud, self.loud = self.loud, level.level > 0
        publisher.latest(self._event, level)
        return self.loud and not was_loud

    def quiet(self, now: float, publisher: Publisher | None) -> None:
        """Publish silence, once, if no audio was fed for 0.25 s; called on the timer thread."""
        if publisher is not None and self.loud and now > self._published_at + _SILENT_AFTER:
            self.loud = False
            publisher.latest(self._event, _SILENCE)
