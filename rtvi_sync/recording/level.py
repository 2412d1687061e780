"""How loud PCM is. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from operator import mul

# RMS, of 32768. Below it is what a converter hums; the softest speech is above.
FLOOR = 30.0
# Against the loudest part: 28 dB below it speech is over, and what is left is breath and the room.
_SHARE = 0.04


def rms(pcm: bytes) -> float:
    """The root mean square of signed 16-bit little endian samples."""
    samples = array("h", pcm[: len(pcm) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    return float((sum(map(mul, samples, samples)) / max(1, len(samples))) ** 0.5)


def audible(levels: Sequence[float]) -> list[bool]:
    """Which of these pieces of one voice hold speech, by their RMS."""
    limit = max(FLOOR, _SHARE * max(levels, default=0.0))
    return [level >= limit for level in levels]
