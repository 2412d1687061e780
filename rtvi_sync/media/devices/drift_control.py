"""Drift control: the delay of a bot that sends without a pause, whose clock differs from the sound card's.

A pause resets the delay: the speech after it starts with the usual delay. Without a pause, two clocks that differ by
500 ppm are 1.8 s apart after an hour, and audio that a network delivers in one burst after a stall stays late. So
continuous speech is played a little faster while all of it is late, and a little slower while some of it arrives at the
last moment.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable

from ...errors import MissingExtraError
from ..base import AudioFrame
from ..resample import SpeedChanger

# The smallest delay within this many seconds counts, because a frame that the network delays must be in time as well.
_SECONDS = 10
# The speed changes if the delay differs from the first one by more than this many seconds.
_TOLERANCE = 0.02
# Change of the speed for each second beyond that, and the largest change: a sixth of a semitone, which is too gradual
# to be noticed. A drift of 500 ppm is balanced at 10 ms, and a burst within some tens of seconds.
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
        """Start with speech after a pause, which is played `delay` seconds after its arrival."""
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
        """The speed for the next audio."""
        excess = min(self._least) - self._usual
        change = _GAIN * math.copysign(max(0.0, abs(excess) - _TOLERANCE), excess)
        return 1.0 + max(-_LARGEST_CHANGE, min(_LARGEST_CHANGE, change))

    def convert(self, pcm: bytes) -> bytes:
        """Return audio at its speed; the last 8 samples follow with the next call."""
        return pcm if self._changer is None else self._changer.convert(pcm, self.speed)
