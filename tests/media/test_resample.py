"""Sample rates that devices refuse are converted, piece by piece."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rtvi_sync.errors import MissingExtraError
from rtvi_sync.media.resample import Resampler
from tests.audio.pulse import Samples
from tests.audio.signals import alignment

PERIOD = 0.02


def sweep(rate: int, seconds: float = 1.0) -> Samples:
    """A tone that rises by 4 kHz a second."""
    time = np.arange(int(rate * seconds)) / rate
    return (10000 * np.sin(2 * np.pi * (100 + 2000 * time) * time)).astype("<i2")


def converted(resampler: Resampler, samples: Samples, period: int) -> Samples:
    """All that comes out when the samples go in by periods."""
    pieces = [resampler.convert(samples[n : n + period].tobytes()) for n in range(0, len(samples), period)]
    return np.frombuffer(b"".join(pieces), "<i2")


@pytest.mark.parametrize(("from_hz", "to_hz"), [(44100, 16000), (48000, 16000), (24000, 44100), (24000, 48000)])
def test_it_is_the_same_sound(from_hz: int, to_hz: int) -> None:
    """A tone is that tone at the other rate, without a click between the pieces; at most 25 ms are held back."""
    pytest.importorskip("soxr")
    out = converted(Resampler(from_hz, to_hz), sweep(from_hz), int(from_hz * PERIOD))
    assert len(out) > to_hz - 0.025 * to_hz
    similar, delay = alignment(out, sweep(to_hz, 0.9))
    assert similar > 0.9999
    assert delay < 0.003 * to_hz


def test_a_new_beginning() -> None:
    """What came in before it is forgotten, and what follows is as if it were the first."""
    pytest.importorskip("soxr")
    resampler = Resampler(48000, 16000)

    def convert() -> Samples:
        return np.frombuffer(resampler.convert(sweep(48000, 0.1).tobytes()), "<i2").astype(int)

    first, second = convert(), convert()
    assert abs(second - first).max() > 1000
    resampler.reset()
    assert abs(convert() - first).max() < 10  # it adds noise when it rounds


def test_without_soxr(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command that installs it."""
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(MissingExtraError, match=r'pip install "rtvi_sync\[resample\]"') as caught:
        Resampler(48000, 16000)
    assert caught.value.extra == "resample"
