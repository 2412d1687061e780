"""The resampler of complete recordings."""

from __future__ import annotations

import importlib
import sys
from array import array

import pytest

from rtvi_sync.media.resample import resample


@pytest.mark.parametrize("soxr", [True, False])
@pytest.mark.parametrize(("from_hz", "to_hz"), [(16_000, 24_000), (48_000, 16_000)])
def test_length_and_level_stay(soxr, from_hz, to_hz, monkeypatch):
    """One second stays one second and a constant keeps its value, with soxr and without it."""
    if not soxr:
        monkeypatch.setitem(sys.modules, "soxr", None)
    elif importlib.util.find_spec("soxr") is None:
        pytest.skip("soxr (extra resample) is not installed")
    samples = array("h", resample(array("h", [1000] * from_hz).tobytes(), from_hz, to_hz))
    assert len(samples) == to_hz
    assert all(abs(value - 1000) < 20 for value in samples[2000:-2000])


def test_a_recording_without_audio():
    """No input gives no output."""
    assert resample(b"", 16_000, 24_000) == b""
