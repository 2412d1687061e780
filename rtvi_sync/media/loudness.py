"""The RMS levels at which audio counts as speech. Pure."""

from __future__ import annotations

from collections.abc import Sequence

# RMS, of 32768. The noise of an A/D converter is below it, the softest speech above.
FLOOR = 30.0
# Share of the loudest frame's RMS (-28 dB) below which a frame holds breath and room noise instead of speech.
_SHARE = 0.04


def audible(levels: Sequence[float]) -> list[bool]:
    """Tell for each frame of one voice whether it holds speech, by its RMS."""
    limit = max(FLOOR, _SHARE * max(levels, default=0.0))
    return [level >= limit for level in levels]
