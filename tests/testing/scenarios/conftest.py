"""Scenario files that tests write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rtvi_sync.testing import scenarios
from rtvi_sync.testing.scenarios import Scenario, ScenarioFileError


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Sequence[Scenario]]:
    """Return a function that writes a text to `calls.yaml`, and others beside it, and loads it."""

    def write_and_load(text: str | bytes, **others: str) -> Sequence[Scenario]:
        for name, content in {"calls": text, **others}.items():
            data = content.encode() if isinstance(content, str) else content
            (tmp_path / f"{name}.yaml").write_bytes(data)
        return scenarios.load(tmp_path / "calls.yaml")

    return write_and_load


@pytest.fixture
def fault(load: Callable[..., Sequence[Scenario]], tmp_path: Path) -> Callable[..., str]:
    """Return a function that loads a text as `load` does, and returns the faults, without the folder."""

    def fault_of(text: str | bytes, **others: str) -> str:
        with pytest.raises(ScenarioFileError) as caught:
            load(text, **others)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return fault_of
