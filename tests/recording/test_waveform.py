"""The outline of audio."""

from __future__ import annotations

from array import array

import pytest

from rtvi_sync.recording.waveform import columns_of

pytestmark = pytest.mark.inside


def test_a_column_is_10_ms() -> None:
    """A column has the lowest and the highest sample of its 10 ms, as bytes; the last one may be shorter."""
    pcm = array("h", [0] * 80 + [-32768, 32767] * 40 + [256] * 20).tobytes()
    assert columns_of(pcm, 8000) == (0.01, array("b", [0, 0, -128, 127, 1, 1]).tobytes())


def test_long_audio_has_longer_columns() -> None:
    """Of an hour there are 60,000 columns at most, and they last as long as the audio."""
    width, columns = columns_of(bytes(2 * 3600 * 1000), 1000)
    assert len(columns) // 2 <= 60_000
    assert width * len(columns) / 2 == pytest.approx(3600, abs=width)


def test_no_audio() -> None:
    """Without audio there are no columns."""
    assert columns_of(b"", 0) == (0.01, b"")
