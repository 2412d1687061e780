"""The parts of a scenario, and the reduction of many measured values to few figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from ..peers.base import Peer

#: `scenario(peer, url, effort)`: the figures by name. With an effort of 1 as much is measured as a steady figure takes.
Scenario: TypeAlias = Callable[[type[Peer], str, float], Mapping[str, float]]
#: Of fewer values there is no p99: it would be the greatest of them.
_LEAST_OF_P99: Final = 100


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float], unit: str, scale: float) -> dict[str, float]:
    """Return `p50_UNIT`, and of at least 100 values `p99_UNIT`, of values in seconds; `scale` units are one second."""
    shares = {"p50": 0.5, "p99": 0.99} if len(values) >= _LEAST_OF_P99 else {"p50": 0.5}
    return {f"{name}_{unit}": percentile(values, share) * scale for name, share in shares.items()}
