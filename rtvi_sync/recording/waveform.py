"""The outline of audio, for drawing. Pure."""

from __future__ import annotations

import sys
from array import array
from typing import Final

_COLUMN: Final = 0.01
_MAX_COLUMNS: Final = 60_000


def columns_of(pcm: bytes, rate_hz: int) -> tuple[float, bytes]:
    """Return the lowest and highest sample of each column of a picture.

    A column is 10 ms. Audio longer than 10 minutes has longer columns, so that there are at most 60,000.

    Args:
        pcm: Signed 16-bit little-endian samples, mono.
        rate_hz: Sample rate in hertz.

    Returns:
        The duration of a column in seconds, and its lowest and highest sample as two signed bytes, column by column.
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
