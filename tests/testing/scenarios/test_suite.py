from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot, scenarios
from rtvi_sync.testing.load.progress import LoadProgress
from rtvi_sync.testing.scenarios.hooks import Hooks
from rtvi_sync.testing.scenarios.run import RunOptions, ScenarioRun
from rtvi_sync.testing.scenarios.suite import ScenarioSuite
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

OPTIONS = RunOptions(transport="eval")


def suite(
    folder: Path, url: str, count: int, concurrency: int, on_result: Callable[[scenarios.ScenarioResult], object]
) -> ScenarioSuite:
    """Return a suite of scenarios that pass and fail in turns."""
    lines = ["name: many", "scenarios:"]
    for number in range(count):
        unwanted = "Ho" if number % 2 else "Hi"
        expected = f"{{event: llm_response, text_excludes: {unwanted}}}"
        lines.append(f"  - {{name: c{number}, turns: [{{user: Hi, expect: [{expected}]}}]}}")
    (folder / "many.yaml").write_text("\n".join(lines))
    runs = [partial(ScenarioRun, each, url, Hooks(), OPTIONS) for each in scenarios.load(folder / "many.yaml")]
    return ScenarioSuite(runs, concurrency, on_result, LoadProgress(count, shown=False))


@pytest.mark.parametrize("concurrency", [1, 8])
def test_verdicts(tmp_path: Path, concurrency: int) -> None:
    """Scenarios that run at the same time have the verdicts of those that do not, in the order of the files."""
    told: list[str] = []
    with EmbeddedBot() as bot:
        many = suite(tmp_path, bot.base_url, 20, concurrency, lambda result: told.append(result.name))
        many.run()
    expected = [(f"many/c{number}", "passed" if number % 2 else "failed") for number in range(20)]
    assert [(each.name, each.verdict) for each in many.results] == expected
    assert sorted(told) == sorted(name for name, _ in expected)


def test_an_interrupt(tmp_path: Path) -> None:
    """Ctrl-C ends all sessions; finished results are kept."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with EmbeddedBot() as bot:
        many = suite(tmp_path, bot.base_url, 20, 2, interrupt)
        with pytest.raises(KeyboardInterrupt):
            many.run()
        bot.wait_for_session(GUARD).wait_ended(GUARD)
    assert len(many.results) == 1


def test_a_run_that_cannot_be_made() -> None:
    """An exception in a run is raised to the caller."""

    def fail(_: float) -> ScenarioRun:
        raise ValueError("no run")

    with pytest.raises(ValueError, match="no run"):
        ScenarioSuite([fail], 1, lambda _: None, LoadProgress(1, shown=False)).run()
