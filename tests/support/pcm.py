"""Samples of PCM, signed 16-bit little endian, and how loud they are."""

from __future__ import annotations

import array
import math
import sys
from collections.abc import Iterable


def samples_of(pcm: bytes) -> array.array[int]:
    """Return the samples."""
    samples = array.array("h", bytes(pcm))
    if sys.byteorder == "big":
        samples.byteswap()
    return samples


def bytes_of(samples: Iterable[int]) -> bytes:
    """Return the bytes of samples."""
    found = array.array("h", samples)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


def rms(pcm: bytes) -> float:
    """Return the root mean square; 0 of nothing."""
    samples = samples_of(pcm)
    return math.sqrt(sum(sample * sample for sample in samples) / len(samples)) if samples else 0.0
