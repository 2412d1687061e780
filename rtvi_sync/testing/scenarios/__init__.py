"""Pipecat's eval scenarios: files of conversations, and what the bot must do in them.

    for scenario in scenarios.load("calls.yaml"):
        print(scenario.full_name)

Reading files needs the extra `scenarios`.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from rtvi_sync.errors import ScenarioFileError
    from rtvi_sync.testing.scenarios.files import load
    from rtvi_sync.testing.scenarios.model import Scenario

__all__ = ["Scenario", "ScenarioFileError", "load"]

# Each name is imported on first use: only reading needs PyYAML.
_MODULE_OF = {
    "Scenario": "rtvi_sync.testing.scenarios.model",
    "ScenarioFileError": "rtvi_sync.errors",
    "load": "rtvi_sync.testing.scenarios.files",
}

if not typing.TYPE_CHECKING:  # hidden, because a type checker would accept any name

    def __getattr__(name: str) -> typing.Any:
        module = _MODULE_OF.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(importlib.import_module(module), name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
