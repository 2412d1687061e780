"""The results, stored beside the page: each figure of each round, so that the page can be generated again."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

#: Figures of one process, by name; or `cannot`, why the library cannot do it; or `failed`, the error.
Round: TypeAlias = Mapping[str, Any]
#: Scenario -> peer -> rounds. Rounds with the same number were measured within seconds of each other: a scenario is
#: only measured again as a whole, with all its peers.
Rounds: TypeAlias = dict[str, dict[str, list[Round]]]


@attrs.define
class Results:
    """All measurements.

    Attributes:
        machines: scenario, or other measurement -> the machine, and the versions of the packages.
        measured: scenario, or other measurement -> its rounds, effort and date.
        rounds: the figures.
        held: the rows of `locust_workers`.
        storms: its storms of connects.
    """

    machines: dict[str, dict[str, str]] = attrs.field(factory=dict)
    measured: dict[str, str] = attrs.field(factory=dict)
    rounds: Rounds = attrs.field(factory=dict)
    held: list[dict[str, Any]] = attrs.field(factory=list)
    storms: list[dict[str, Any]] = attrs.field(factory=list)

    @classmethod
    def load(cls, path: Path) -> Results:
        """Load a file; without one, return empty results."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def save(self, path: Path) -> None:
        """Write a file; equal results give equal files."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(attrs.asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def figures(rounds: Rounds, scenario: str, peer: str, figure: str) -> Sequence[float | None]:
    """Return a figure of each round; None if a round has none."""
    return [each.get(figure) for each in rounds.get(scenario, {}).get(peer, [])]


def measured(rounds: Rounds, scenario: str, peer: str, figure: str, over: str = "") -> Sequence[float]:
    """Return a figure of each round that has it, or its ratio to another peer's figure in the same round."""
    found = figures(rounds, scenario, peer, figure)
    if not over:
        return [value for value in found if value is not None]
    pairs = zip(found, figures(rounds, scenario, over, figure), strict=False)
    return [one / other for one, other in pairs if one is not None and other]


def median(rounds: Rounds, scenario: str, peer: str, figure: str) -> float | None:
    """Return the median of all rounds; None without any."""
    found = measured(rounds, scenario, peer, figure)
    return statistics.median(found) if found else None


def ratio(rounds: Rounds, scenario: str, peer: str, figure: str, over: str) -> float | None:
    """Return the median of the ratios to another peer in the same round; None without any."""
    found = measured(rounds, scenario, peer, figure, over)
    return statistics.median(found) if found else None


def gaps(rounds: Rounds, scenario: str, peer: str) -> Sequence[str]:
    """Return why a peer has no figures of a scenario: a reason for each round without them."""
    reasons = (each.get("cannot", each.get("failed")) for each in rounds.get(scenario, {}).get(peer, []))
    return [reason for reason in reasons if reason is not None]
