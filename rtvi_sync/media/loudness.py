"""The RMS levels at which audio counts as speech. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .pcm import rms

# RMS, of 32768. The noise of an A/D converter is below it, the softest speech above.
FLOOR = 30.0
# Share of the loudest frame's RMS (-28 dB) below which a frame holds breath and room noise instead of speech.
_SHARE = 0.04

# How many windows a second of audio has.
WINDOWS_PER_SECOND = 50


def audible_windows(pcm: bytes, sample_rate_hz: int) -> tuple[list[bool], int]:
    """Return for each window, 20 ms of one voice, whether it holds speech; and the number of bytes of a window."""
    size = 2 * max(1, sample_rate_hz // WINDOWS_PER_SECOND)
    return audible([rms(pcm[at : at + size]) for at in range(0, len(pcm), size)]), size


def audible(levels: Sequence[float]) -> list[bool]:
    """Tell for each frame of one voice whether it holds speech, by its RMS."""
    limit = max(FLOOR, _SHARE * max(levels, default=0.0))
    return [level >= limit for level in levels]
