"""What a scenario is, and how many measured values become few figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..peers.base import Peer

#: `scenario(peer, url, effort)`: the figures by name. With an effort of 1 as much is measured as a steady figure takes.
Scenario: TypeAlias = Callable[[type[Peer], str, float], Mapping[str, float]]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float], unit: str, scale: float) -> dict[str, float]:
    """Return the figures `p50_UNIT` and `p99_UNIT` of values in seconds; `scale` units are one second."""
    return {f"p50_{unit}": percentile(values, 0.5) * scale, f"p99_{unit}": percentile(values, 0.99) * scale}
