"""Loudness of PCM. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from operator import mul

# RMS, of 32768. The noise of an A/D converter is below it, the softest speech above.
FLOOR = 30.0
# Share of the loudest frame's RMS (-28 dB) below which a frame holds breath and room noise instead of speech.
_SHARE = 0.04


def rms(pcm: bytes) -> float:
    """Return the root mean square of signed 16-bit little endian samples."""
    samples = array("h", pcm[: len(pcm) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    return float((sum(map(mul, samples, samples)) / max(1, len(samples))) ** 0.5)


def audible(levels: Sequence[float]) -> list[bool]:
    """Tell for each frame of one voice whether it holds speech, by its RMS."""
    limit = max(FLOOR, _SHARE * max(levels, default=0.0))
    return [level >= limit for level in levels]
