"""Half the sample rate, 2 ms late."""

from __future__ import annotations

import array
import math

import pytest

from rtvi_sync.media.pcm import rms, samples_of, silence
from rtvi_sync.media.resample import HalfRate

pytestmark = pytest.mark.inside

RATE = 16_000
FRAME = RATE // 50


def sine(hz: float, seconds: float = 0.5) -> bytes:
    """Return a tone with an amplitude of 10,000."""
    samples = (round(10_000 * math.sin(2 * math.pi * hz * n / RATE)) for n in range(round(seconds * RATE)))
    return array.array("h", samples).tobytes()


def halved(pcm: bytes, frames: int = FRAME) -> bytes:
    """Return it at half its rate, converted in frames."""
    converter = HalfRate()
    return b"".join(converter.convert(pcm[at : at + 2 * frames]) for at in range(0, len(pcm), 2 * frames))


@pytest.mark.parametrize(("hz", "low", "high"), [(300, -0.1, 0.1), (3400, -0.1, 0.1), (4400, -200, -45)])
def test_what_a_telephone_carries_passes(hz, low, high):
    """Speech up to 3.4 kHz is unchanged, and frequencies that would alias into it are gone."""
    level = rms(halved(sine(hz))[1000:])
    assert low <= 20 * math.log10(max(level, 1e-9) / (10_000 / math.sqrt(2))) <= high


def test_each_frame_gives_half_a_frame():
    """From the first one on, so that a line never waits for its next one."""
    converter = HalfRate()
    assert {len(converter.convert(sine(440, 0.02))) for _ in range(5)} == {FRAME}


@pytest.mark.parametrize("frames", [1, 7, 80, 320, 999])
def test_the_frames_do_not_matter(frames):
    """The output depends on the samples alone, with any silence between them."""
    said = sine(440, 0.1) + silence(700) + sine(1000, 0.1)
    whole, parts = halved(said, 8000), halved(said, frames)
    assert abs(len(whole) - len(parts)) <= 2
    assert max(abs(a - b) for a, b in zip(samples_of(whole), samples_of(parts), strict=False)) <= 1


def test_it_is_2_ms_late():
    """As long as half its filter."""
    click = silence(160) + array.array("h", [20_000] * 2).tobytes() + silence(480)
    out = samples_of(halved(click))
    loudest = max(range(len(out)), key=lambda n: abs(out[n]))
    assert loudest / 8000 - 160 / RATE == pytest.approx(0.002, abs=0.0003)


def test_loud_speech_is_clipped():
    """A filter can overshoot."""
    square = array.array("h", [32_767] * 20 + [-32_768] * 20) * 200
    assert set(map(abs, samples_of(halved(square.tobytes())))) <= {*range(32_769)}
