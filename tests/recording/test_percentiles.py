"""LatencyPercentiles of durations."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Literal

import hypothesis
import pytest
from hypothesis import strategies

from rtvi_sync import Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.recording.percentiles import MEASURES, LatencyPercentiles, percentile, percentiles_of

pytestmark = pytest.mark.inside


@hypothesis.given(strategies.lists(strategies.floats(0.0, 100.0), min_size=2, max_size=60))
def test_percentiles_are_those_of_the_standard_library(values: list[float]) -> None:
    """The median equals the one of `statistics`, and the others are its inclusive quantiles."""
    cuts = quantiles(values, n=100, method="inclusive")
    assert percentile(values, 0.5) == pytest.approx(median(values))
    assert [percentile(values, share) for share in (0.95, 0.99)] == pytest.approx([cuts[94], cuts[98]])
    assert (percentile(values, 0.0), percentile(values, 1.0)) == (min(values), max(values))


def test_few_values() -> None:
    """One value is each percentile; without a value there is none."""
    assert [percentile([0.7], share) for share in (0.0, 0.5, 0.95, 1.0)] == [0.7] * 4
    assert LatencyPercentiles.of([]) == LatencyPercentiles(count=0, p50=None, p95=None, max=None)


def test_percentiles_of_turns() -> None:
    """A turn without a latency does not count for it: a typed turn has no time from voice to voice."""
    cases: list[tuple[Literal["audio", "text"], TurnTimings]] = [
        ("audio", TurnTimings(user_stopped=1.0, first_token=1.5, first_audio=2.0)),
        ("text", TurnTimings(user_stopped=1.0, first_audio=4.0)),
        ("audio", TurnTimings(user_stopped=1.0)),
    ]
    spoken, typed, silent = (
        Turn(number=number, session=1, initiator="user", modality=modality, timings=timings)
        for number, (modality, timings) in enumerate(cases, 1)
    )
    found = percentiles_of([spoken, typed, silent])
    assert tuple(found) == MEASURES
    assert found["voice_to_voice"] == LatencyPercentiles(count=1, p50=1.0, p95=1.0, max=1.0)
    assert found["time_to_first_token"] == LatencyPercentiles(count=1, p50=0.5, p95=0.5, max=0.5)
    assert found["time_to_first_audio"] == LatencyPercentiles(count=2, p50=2.0, p95=2.9, max=3.0)
