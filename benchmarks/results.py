"""What was measured, as it is kept beside the page: each figure of each round, so that the page can be made anew."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs

#: What one process found: its figures by name; or `cannot`, why the library cannot do it; or `failed`, the error.
Round: TypeAlias = Mapping[str, Any]
#: Scenario -> peer -> rounds. All that have the same number were measured within seconds of each other: a scenario is
#: measured anew as a whole, never one peer of it.
Rounds: TypeAlias = dict[str, dict[str, list[Round]]]


@attrs.define
class Results:
    """All that was measured on a machine.

    Attributes:
        machine: what it is, and the versions of what was measured.
        measured: scenario, or what else was measured -> how often, and how much of it.
        rounds: by this Python.
        pythons: by each version of Python, a part of the same.
        parts: name of a part of the package -> seconds that it takes, the median.
        mouth_to_ear: rows of times, in seconds, as `mouth_to_ear` measures them.
        lacking: what could not be measured, and why.
    """

    machine: dict[str, str] = attrs.field(factory=dict)
    measured: dict[str, str] = attrs.field(factory=dict)
    rounds: Rounds = attrs.field(factory=dict)
    pythons: dict[str, Rounds] = attrs.field(factory=dict)
    parts: dict[str, float] = attrs.field(factory=dict)
    mouth_to_ear: list[dict[str, Any]] = attrs.field(factory=list)
    lacking: dict[str, str] = attrs.field(factory=dict)

    @classmethod
    def load(cls, path: Path) -> Results:
        """What is in a file; nothing without one."""
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else cls()

    def save(self, path: Path) -> None:
        """Write a file that differs only where a figure does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(attrs.asdict(self), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def figures(rounds: Rounds, scenario: str, peer: str, figure: str) -> Sequence[float | None]:
    """A figure of each round; None where there is none."""
    return [each.get(figure) for each in rounds.get(scenario, {}).get(peer, [])]


def median(rounds: Rounds, scenario: str, peer: str, figure: str) -> float | None:
    """The median of all rounds; None without one."""
    found = [value for value in figures(rounds, scenario, peer, figure) if value is not None]
    return statistics.median(found) if found else None


def ratio(rounds: Rounds, scenario: str, peer: str, figure: str, over: str) -> float | None:
    """The median of the ratios to another peer in the same round; None without one."""
    pairs = zip(figures(rounds, scenario, peer, figure), figures(rounds, scenario, over, figure), strict=False)
    found = [one / other for one, other in pairs if one is not None and other]
    return statistics.median(found) if found else None


def gaps(rounds: Rounds, scenario: str, peer: str) -> Sequence[str]:
    """Why a peer has no figures of a scenario, a reason for each round that has none."""
    reasons = (each.get("cannot", each.get("failed")) for each in rounds.get(scenario, {}).get(peer, []))
    return [reason for reason in reasons if reason is not None]
