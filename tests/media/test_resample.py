"""Sample rates that devices refuse are converted, piece by piece."""

from __future__ import annotations

import importlib
import sys
from array import array

import numpy as np
import pytest

from rtvi_sync.errors import MissingExtraError
from rtvi_sync.media.resample import Resampler, SpeedChanger, resample
from tests.audio.pulse import Samples
from tests.audio.signals import alignment

pytestmark = pytest.mark.inside

PERIOD = 0.02


def sweep(rate: int, seconds: float = 1.0) -> Samples:
    """Return a tone that rises by 4 kHz a second."""
    time = np.arange(int(rate * seconds)) / rate
    return (10000 * np.sin(2 * np.pi * (100 + 2000 * time) * time)).astype("<i2")


def converted(resampler: Resampler, samples: Samples, period: int) -> Samples:
    """Return the whole output for samples that are fed by periods."""
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
    """Earlier input is forgotten, and the next input is treated as the first."""
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
    with pytest.raises(MissingExtraError, match=r"install .*\[resample\]") as caught:
        Resampler(48000, 16000)
    assert caught.value.extra == "resample"


@pytest.mark.parametrize("soxr", [True, False])
@pytest.mark.parametrize(("from_hz", "to_hz"), [(16_000, 24_000), (48_000, 16_000)])
def test_length_and_level_stay(soxr, from_hz, to_hz, monkeypatch):
    """Resampling keeps the duration and the level, with soxr and without it."""
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


@pytest.mark.parametrize("speed", [0.99, 0.9995, 1.0005, 1.01])
def test_another_speed(speed: float) -> None:
    """A tone of 6 kHz at a slightly different speed stays that tone: 55 dB above the error."""
    samples = (10000 * np.sin(2 * np.pi * 6000 * np.arange(24000) / 24000)).astype("<i2")
    changer = SpeedChanger()
    pieces = [changer.convert(samples[n : n + 480].tobytes(), speed) for n in range(0, len(samples), 480)]
    out = np.frombuffer(b"".join(pieces), "<i2")
    assert len(out) == pytest.approx(24000 / speed, abs=20)
    error = (out - 10000 * np.sin(2 * np.pi * 6000 * speed * np.arange(len(out)) / 24000))[100:]
    assert 10 * np.log10(10000**2 / 2 / np.mean(error**2)) > 55


def test_no_other_speed() -> None:
    """While the speed is 1.0 each sample is as it was, 8 samples later; pieces may be of any length."""
    samples = sweep(24000)
    changer = SpeedChanger()
    pieces = [changer.convert(samples[n : n + 7].tobytes(), 1.0) for n in range(0, len(samples), 7)]
    assert b"".join(pieces) == samples[:-8].tobytes()


def test_loud_samples_are_not_turned_over() -> None:
    """Samples that the filter makes too loud are clipped to the maximum."""
    loud = np.repeat(np.array([32767, -32768] * 20, "<i2"), 80)
    out = np.frombuffer(SpeedChanger().convert(loud.tobytes(), 1.01), "<i2")
    place = np.arange(len(out)) * 1.01 % 160
    assert (out[(place > 2) & (place < 77)] > 0).all()
    assert (out[(place > 82) & (place < 157)] < 0).all()
