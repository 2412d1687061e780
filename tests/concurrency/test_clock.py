"""The clock of the package, beside functions of `time` that were replaced."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rtvi_sync.concurrency import clock
from tests.support.waiting import until

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("name", ["monotonic", "perf_counter"])
def test_a_clock_runs_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock runs beside a function of `time` that stands still, and is that function's clock otherwise."""
    read: Callable[[], float] = getattr(clock, name)
    original: Callable[[], float] = getattr(time, name)
    before = original()
    monkeypatch.setattr(time, name, lambda: 7.0)
    now = read()
    assert before <= now <= original()
    assert getattr(clock, name) is not original
    monkeypatch.undo()
    until(lambda: read() > now)


def test_the_wall_clock() -> None:
    """The wall clock is the one of `time.time()`."""
    before = time.time()
    assert before <= clock.wall_time() <= time.time()
