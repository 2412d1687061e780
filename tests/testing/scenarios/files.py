"""Scenario files of one scenario, for tests of their results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rtvi_sync.testing import scenarios


def scenario_of(folder: Path, text: str, name: str = "file.yaml") -> scenarios.Scenario:
    """Return the only scenario of a file, which is named "file" if its text has no name."""
    path = folder / name
    path.write_text(text if text.startswith("name:") else f"name: file\n{text}")
    (scenario,) = scenarios.load(path)
    return scenario


def statuses(result: scenarios.ScenarioResult) -> list[tuple[str, Mapping[int, str]]]:
    """Return the verdict of each turn, and the verdicts of its expectations, by index; for failures, their kinds."""
    return [
        (turn.verdict, {each.index: each.kind or each.verdict for each in turn.expectations}) for turn in result.turns
    ]
