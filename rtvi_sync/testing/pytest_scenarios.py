"""Scenario files as pytest tests, one item for each scenario. The plugin imports it for `--rtvi-scenarios`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.errors import MissingExtraError, RTVIError, ScenarioFileError
from rtvi_sync.protocol.text import one_line
from rtvi_sync.testing import scenarios
from rtvi_sync.testing.scenarios.model import Scenario
from rtvi_sync.testing.scenarios.report import ScenarioResult

#: Name patterns of the collected files.
PATTERNS = ("test_*.yaml", "*.rtvi.yaml")

RunScenario = Callable[..., ScenarioResult]


class ScenarioFile(pytest.File):
    """A scenario file.

    Attributes:
        run_scenario: Function `run_scenario(item, scenario, hooks)`, which runs a scenario by the options of pytest.
    """

    run_scenario: RunScenario

    def collect(self) -> Iterator[ScenarioItem]:
        """Yield an item for each scenario of the file."""
        try:
            found = scenarios.load(self.path)
        except (ScenarioFileError, MissingExtraError) as error:
            raise self.CollectError(str(error)) from None
        for scenario in found:
            yield ScenarioItem.from_parent(
                self, name=scenario.name, callobj=_test_of(scenario, self.run_scenario), scenario=scenario
            )


class ScenarioItem(pytest.Function):
    """A scenario as a test.

    Attributes:
        is_scenario: Marks scenarios for the plugin, which imports this module late.
    """

    is_scenario = True

    def __init__(self, *, scenario: Scenario, **options: Any) -> None:
        super().__init__(**options)
        self._scenario = scenario

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the location of the scenario."""
        return self._scenario.at.path, max(0, self._scenario.at.line - 1), self._scenario.full_name


def _test_of(scenario: Scenario, run_scenario: RunScenario) -> Callable[..., None]:
    """Return the test function of a scenario."""

    def test(
        request: pytest.FixtureRequest,
        rtvi_url: str,
        rtvi_judge: Any,
        rtvi_tts: Any,
        rtvi_transcribe: Any,
        rtvi_next_line: Any,
    ) -> None:
        hooks = {"judge": rtvi_judge, "tts": rtvi_tts, "transcribe": rtvi_transcribe, "next_line": rtvi_next_line}
        try:
            result = run_scenario(request.node, rtvi_url, scenario, hooks)
        except RTVIError as error:  # an option of pytest is wrong, or a package that it needs is missing
            raise pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False) from None
        if result.verdict == "failed":
            # pytest's summary shows the first line.
            pytest.fail(f"{one_line(result.failures[0].reason)}\n{result}", pytrace=False)
        if result.skip_reason is not None:
            pytest.skip(result.skip_reason)

    return test
