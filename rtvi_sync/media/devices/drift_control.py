"""Drift control: the delay of a bot that sends without a pause, whose clock is not that of the sound card.

A pause sets the delay right: speech that follows it begins with the usual delay. Without one, two clocks that differ by
500 ppm are 1.8 s apart after an hour, and what a network has delivered at once after a stall stays late. So continuous
speech is played a little faster while all of it is late, and a little slower while some of it comes at the last moment.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable

from ...errors import MissingExtraError
from ..base import AudioFrame
from ..resample import SpeedChanger

# The least delay in these seconds counts, because a frame that the network delays must be in time as well.
_SECONDS = 10
# By how many seconds it may differ from the delay at the beginning before the speed changes.
_TOLERANCE = 0.02
# Change of the speed for each second beyond that, and the largest change: a sixth of a semitone, which comes too slowly
# to be noticed. 500 ppm are made up for at 10 ms; what has come at once is made up for in some tens of seconds.
_GAIN = 0.05
_LARGEST_CHANGE = 0.01


class DriftControl:
    """The speed at which continuous speech is played. Without numpy, whose import takes 0.1 s, it stays as it is."""

    def __init__(self) -> None:
        self._changer: SpeedChanger | None = None
        with contextlib.suppress(MissingExtraError):
            self._changer = SpeedChanger()
        self.begin(0.0)

    def begin(self, delay: float) -> None:
        """Begin with speech after a pause, which is played `delay` seconds after it has arrived."""
        self._usual = delay
        self._least: deque[float] = deque([math.inf], maxlen=_SECONDS)  # delay in each of the last seconds
        self._heard = 0.0  # seconds of audio in the last of these
        if self._changer is not None:
            self._changer.reset()

    def note(self, frames: Iterable[AudioFrame], at: float) -> None:
        """Note the next frames, and when the first of them is played."""
        for frame in frames:
            if self._heard >= 1.0:
                self._heard = 0.0
                self._least.append(math.inf)
            self._least[-1] = min(self._least[-1], at - frame.timestamp)
            self._heard += frame.duration
            at += frame.duration

    @property
    def speed(self) -> float:
        """Return the speed at which the next audio is to be played."""
        excess = min(self._least) - self._usual
        change = _GAIN * math.copysign(max(0.0, abs(excess) - _TOLERANCE), excess)
        return 1.0 + max(-_LARGEST_CHANGE, min(_LARGEST_CHANGE, change))

    def convert(self, pcm: bytes) -> bytes:
        """Return audio at its speed; the last 8 samples come with the next."""
        return pcm if self._changer is None else self._changer.convert(pcm, self.speed)
