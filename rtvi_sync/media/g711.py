"""The tables of G.711: µ-law and A-law."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import chain, repeat
from typing import Final


class Law:
    """The tables of one law of G.711, which divides the positive samples into 128 intervals, each with its code.

    A negative sample has the code of its complement, with the first bit flipped. A code is decoded to the middle of its
    interval.

    Args:
        codes: the codes of the intervals, from the quietest on.
        widths: the samples in each interval.
        begin: first sample of the first interval.
    """

    def __init__(self, codes: Iterable[int], widths: Iterable[int], begin: int = 0) -> None:
        positive, levels = bytearray(), [0] * 256
        for code, width in zip(codes, widths, strict=True):
            levels[code] = begin + len(positive) + width // 2
            levels[code ^ 0x80] = -levels[code]
            positive += bytes(repeat(code, width))
        del positive[:-begin]
        positive += bytes(repeat(positive[-1], 0x8000 - len(positive)))  # the loudest samples are clipped
        flipped = bytes(code ^ 0x80 for code in range(256))
        # A negative index counts from the end of the table, so a sample is the index of its code.
        self._code_of = bytes(positive + positive[::-1].translate(flipped)).__getitem__
        self._low_bytes = bytes(level & 0xFF for level in levels)
        self._high_bytes = bytes(level >> 8 & 0xFF for level in levels)

    def encode(self, samples: Iterable[int]) -> bytes:
        """Return the codes of samples."""
        return bytes(map(self._code_of, samples))

    def decode(self, codes: bytes) -> bytes:
        """Return codes as PCM."""
        pcm = bytearray(2 * len(codes))
        pcm[0::2] = codes.translate(self._low_bytes)
        pcm[1::2] = codes.translate(self._high_bytes)
        return bytes(pcm)


_SEGMENTS: Final = range(8)


@functools.cache
def mulaw() -> Law:
    """Return µ-law; the tables are made on the first call."""
    return Law(range(0xFF, 0x7F, -1), chain.from_iterable(repeat(8 << s, 16) for s in _SEGMENTS), begin=-4)


@functools.cache
def alaw() -> Law:
    """Return A-law; the tables are made on the first call."""
    codes = (code ^ 0x55 for code in range(0x80, 0x100))
    return Law(codes, chain.from_iterable(repeat(16 << max(0, s - 1), 16) for s in _SEGMENTS))
