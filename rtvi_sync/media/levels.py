"""How loud it is, told a few times a second to whoever listens."""

from __future__ import annotations

import math

from ..events import RTVIEvent
from . import pcm as pcm_tools
from .state import AudioLevel
from .status_reporter import DeviceStatusReporter

# At most 20 a second, as a meter on a screen needs them.
_INTERVAL = 0.05
# After so long without audio it is silent. A bot sends nothing while it is quiet.
_SILENT_AFTER = 0.25
# What is measured at most, of a frame and of their number: seconds of sound must not keep the io thread busy.
_MEASURED_BYTES = 9600
_MEASURED_PIECES = 4
_SILENCE = AudioLevel(level=0.0, dbfs=-100.0)


def level_of(pcm: bytes) -> AudioLevel:
    """The root mean square of samples."""
    level = min(1.0, pcm_tools.rms(pcm) / 32768)
    return AudioLevel(level=level, dbfs=max(-100.0, 20 * math.log10(level))) if level > 0 else _SILENCE


class LevelMeter:
    """Measures one direction. Costs next to nothing while nobody listens.

    Args:
        event: what it tells.
        status_reporter: has the event_sink where to.
    """

    def __init__(self, event: RTVIEvent, status_reporter: DeviceStatusReporter) -> None:
        self._event = event
        self._status_reporter = status_reporter
        self._pieces: list[bytes] = []
        self._told_at = self._asked_at = -math.inf
        #: Until then nothing is to be fed: nobody listened a moment ago.
        self.idle_until: float = -math.inf
        #: A level above zero was told last: `quiet()` may have to take it back.
        self.loud: bool = False

    def feed(self, pcm: bytes, now: float) -> bool:
        """Take what is sent or heard now; True if it has become loud. Called on one thread."""
        due = now >= self._asked_at + _INTERVAL
        if due:  # audio comes more often than that, and nearly always nobody listens
            self._asked_at = now
            wanted = self._status_reporter.event_sink.has_listener(self._event)
            self.idle_until = -math.inf if wanted else now + _INTERVAL
            if not wanted:
                self._pieces = []  # whoever listens later does not hear of what is long over
        if now < self.idle_until:
            return False
        self._pieces = [*self._pieces[-_MEASURED_PIECES + 1 :], pcm[-_MEASURED_BYTES:]]
        if not due:
            return False
        self._told_at = now
        level = level_of(b"".join(self._pieces))
        self._pieces = []
        was_loud, self.loud = self.loud, level.level > 0
        self._status_reporter.event_sink.latest(self._event, level)
        return self.loud and not was_loud

    def quiet(self, now: float) -> None:
        """Tell that it is silent, once, if nothing was fed for a while. Called on the timer thread's thread."""
        if self.loud and now > self._told_at + _SILENT_AFTER:
            self.loud = False
            self._status_reporter.event_sink.latest(self._event, _SILENCE)
