"""Pipecat's eval scenarios: files with conversations and the bot's expected behaviour.

    for scenario in scenarios.load("calls.yaml"):
        result = scenario.run("ws://localhost:7860/ws", transport="eval")
        assert result.verdict == "passed", result

Reading files needs the extra `scenarios`.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from rtvi_sync.errors import ScenarioFileError
    from rtvi_sync.testing.scenarios.files import load
    from rtvi_sync.testing.scenarios.judging import ChatJudge
    from rtvi_sync.testing.scenarios.model import Scenario
    from rtvi_sync.testing.scenarios.report import (
        ExpectationResult,
        MetricResult,
        ScenarioFailure,
        ScenarioResult,
        ScenarioTurnResult,
    )
    from rtvi_sync.testing.scenarios.run import run_scenario as run_scenario  # for `Scenario.run()`

__all__ = [
    "ChatJudge",
    "ExpectationResult",
    "MetricResult",
    "Scenario",
    "ScenarioFailure",
    "ScenarioFileError",
    "ScenarioResult",
    "ScenarioTurnResult",
    "load",
]

# Each name is imported on first use, because only reading needs PyYAML.
_MODULE_OF = {
    "ChatJudge": "rtvi_sync.testing.scenarios.judging",
    "Scenario": "rtvi_sync.testing.scenarios.model",
    **dict.fromkeys(
        ("ExpectationResult", "MetricResult", "ScenarioFailure", "ScenarioResult", "ScenarioTurnResult"),
        "rtvi_sync.testing.scenarios.report",
    ),
    "ScenarioFileError": "rtvi_sync.errors",
    "load": "rtvi_sync.testing.scenarios.files",
    "run_scenario": "rtvi_sync.testing.scenarios.run",
}

if not typing.TYPE_CHECKING:  # hidden, because a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(module), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
