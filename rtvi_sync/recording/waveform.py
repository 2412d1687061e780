"""The outline of audio, for a picture of it. Pure."""

from __future__ import annotations

import sys
from array import array
from typing import Final

_COLUMN: Final = 0.01
_MAX_COLUMNS: Final = 60_000


def columns_of(pcm: bytes, rate_hz: int) -> tuple[float, bytes]:
    """Return the lowest and highest sample of each column of a picture.

    A column is 10 ms; of audio of more than 10 minutes it is longer, so that there are 60,000 columns at most.

    Args:
        pcm: signed 16-bit little endian samples, mono.
        rate_hz: samples per second.

    Returns:
        The seconds of a column, and its lowest and highest sample as two signed bytes, column after column.
    """
    samples = array("h", pcm[: len(pcm) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    width = max(1, round(_COLUMN * rate_hz), -(-len(samples) // _MAX_COLUMNS))
    found = array("b")
    for start in range(0, len(samples), width):
        column = samples[start : start + width]
        found.append(min(column) >> 8)
        found.append(max(column) >> 8)
    return width / rate_hz if rate_hz else _COLUMN, found.tobytes()
