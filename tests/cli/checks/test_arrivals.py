"""How audio has arrived, from the times of its frames."""

from __future__ import annotations

import pytest

from rtvi_sync.cli.checks.arrivals import arrivals_of
from rtvi_sync.media import AudioFrame

pytestmark = pytest.mark.inside


def frames(*times: float, rate_hz: int = 24000) -> list[AudioFrame]:
    """Return frames of 40 ms that arrived at these times."""
    pcm = bytes(2 * rate_hz * 40 // 1000)
    return [AudioFrame(pcm=pcm, sample_rate_hz=rate_hz, timestamp=time) for time in times]


def test_nothing() -> None:
    """Without a frame there is nothing to tell, and from one there is no pace."""
    assert arrivals_of([]) is None
    alone = arrivals_of(frames(5.0))
    assert alone is not None
    assert (alone.chunk, alone.jitter, alone.gaps) == (0.04, None, 0)


def test_an_even_pace() -> None:
    """Audio at the pace of speech has no gaps and no jitter."""
    even = arrivals_of(frames(*(0.04 * number for number in range(50))))
    assert even is not None
    assert (even.rate_hz, even.gaps) == (24000, 0)
    assert even.seconds == pytest.approx(2.0)
    assert even.jitter == pytest.approx(0.0, abs=1e-9)


def test_a_burst() -> None:
    """Audio that arrives at once is ahead of the time at which it is heard."""
    burst = arrivals_of(frames(*[1.0] * 50))
    assert burst is not None
    assert burst.ahead == pytest.approx(1.96)
    assert burst.gaps == 0


def test_a_gap_and_a_pause() -> None:
    """A gap of less than a second is counted; a longer one is between two speeches."""
    arrived = arrivals_of(frames(0.0, 0.04, 0.38, 0.42, 9.0, 9.04))
    assert arrived is not None
    assert arrived.gaps == 1
    assert arrived.gap_seconds == pytest.approx(0.3)
