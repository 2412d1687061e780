"""The latencies of turns, and percentiles of durations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from ..protocol.text import encodable

if TYPE_CHECKING:
    from rtvi_sync import Turn

MEASURES = ("voice_to_voice", "time_to_first_token", "time_to_first_audio")
"""The latencies of a turn, by the names of the properties of `Turn`, in seconds."""


@attrs.frozen
class ComparedTurn:
    """The compared values of a turn. They are plain data, which one process can send to another."""

    initiator: str
    user_text: str | None
    modality: str | None
    voice_to_voice: float | None
    time_to_first_token: float | None
    time_to_first_audio: float | None

    @classmethod
    def of(cls, turn: Turn) -> ComparedTurn:
        """Return the compared values of a turn."""
        return cls(
            turn.initiator,
            None if turn.user_text is None else encodable(turn.user_text),
            turn.modality,
            *(getattr(turn, measure) for measure in MEASURES),
        )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the values lies, interpolated between neighbours.

    Args:
        values: Values in any order.
        share: Share from 0 to 1; 0.5 is the median.

    Returns:
        None if there are no values.
    """
    return of_sorted(sorted(values), share) if values else None


def of_sorted(values: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values. At least one value is required."""
    place = share * (len(values) - 1)
    index = int(place)
    below, above = values[index], values[min(index + 1, len(values) - 1)]
    return below + (above - below) * (place - index)


@attrs.frozen(kw_only=True)
class LatencyPercentiles:
    """The percentiles of one measurement.

    Attributes:
        count: Number of values.
        p50, p95, max: Percentiles in seconds; None without a value.
    """

    count: int
    p50: float | None
    p95: float | None
    max: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> LatencyPercentiles:
        """Return the percentiles of these values."""
        return cls(
            count=len(values), p50=percentile(values, 0.5), p95=percentile(values, 0.95), max=max(values, default=None)
        )


def known(turns: Iterable[Turn | ComparedTurn], measure: str) -> list[float]:
    """Return one latency of each turn, without the turns that lack it.

    Args:
        turns: Turns in any order.
        measure: One of `MEASURES`.
    """
    return [seconds for turn in turns if (seconds := getattr(turn, measure)) is not None]


def percentiles_of(turns: Sequence[Turn | ComparedTurn]) -> dict[str, LatencyPercentiles]:
    """Return the percentiles of each of the `MEASURES` over these turns."""
    return {measure: LatencyPercentiles.of(known(turns, measure)) for measure in MEASURES}
