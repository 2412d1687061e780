"""What follows from the table of docs/scaling.md, and that each row is of as many sessions as it says."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from benchmarks import held
from benchmarks.locust_workers import Held, by_locust, in_one_process, table, users_at
from rtvi_sync.testing import MeasuredClient

pytestmark = pytest.mark.matrix

ROW = Held(workers=1, sessions=50, cpu=0.18, rss_kb=200.0, requests=(1.0, 9.0), gaps=(22.0, 43.0), real_time=1.0)


def row(sessions: int, **changes: Any) -> Held:
    """Return a row of that many sessions, without faults."""
    return attrs.evolve(ROW, sessions=sessions, **changes)


def test_a_large_test_is_reckoned_by_what_one_worker_held_well() -> None:
    """A large test is calculated from the best row of one worker, not from overloaded rows or other workers."""
    bad = [row(125, cpu=0.71), row(150, gaps=(23.0, 160.0)), row(175, real_time=0.99)]
    text = table([row(200, workers=0), row(50), row(100, cpu=0.33), *bad, row(400, workers=4)])

    assert "**100 sessions**, on 33 % of a core" in text
    assert "1,000 workers" in text
    assert "20 GB of memory in addition to 100 GB" in text
    assert "\n| `run_many()`, one process | 200 |" in text
    assert "\n| Locust, 1 worker | 50 |" in text
    assert "\n| Locust, 4 workers | 400 |" in text


def test_nothing_is_reckoned_by_what_went_badly() -> None:
    """A machine that was busy with something else gives no figure to plan with."""
    with pytest.raises(RuntimeError, match="held none of its rows well"):
        table([row(50, real_time=0.9), row(50, workers=2)])


def test_users_are_counted_before_the_end() -> None:
    """Locust takes them away at the end; a line is of somewhere in its second."""
    history = [{"Timestamp": str(second), "User Count": str(users)} for second, users in ((7, 3), (8, 4), (9, 0))]

    assert users_at(history, 9.5) == 4
    assert users_at(history, 8.9) == 3
    assert users_at(history, 7.5) == 0


class SteppedTime:
    """A clock that moves when a thread sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("begin", "seen"), [(0.0, [4.0]), (9.0, [11.0])])
def test_looks_before_a_session_has_settled_are_left_out(
    monkeypatch: pytest.MonkeyPatch, begin: float, seen: list[float]
) -> None:
    """Looks before a session has settled are left out; of a session that started too late there is one look."""
    clock = SteppedTime()
    clock.now = begin
    monkeypatch.setattr(held, "time", clock)
    monkeypatch.setattr(held, "look", lambda client: (0.0, clock.now))

    assert held.hold(MeasuredClient(), since=3.0, until=3.5) == [(0.0, moment) for moment in seen]


def check(row: Held) -> None:
    """Check that all figures are there; how good they are is the machine's affair."""
    assert 0 <= row.real_time <= 1
    assert 0 <= row.requests[0] <= row.requests[1]  # Locust rounds to milliseconds
    assert 10 < row.gaps[0] <= row.gaps[1]


def test_a_row_of_one_process(url: str) -> None:
    """All its figures are there."""
    check(in_one_process(url, 2, 2.5))


def test_a_row_of_locust(url: str) -> None:
    """All its figures are there."""
    check(by_locust(url, 1, 2, 4))


def test_users_who_are_gone_are_no_row() -> None:
    """What the others cost would be divided among too many."""
    with pytest.raises(RuntimeError, match=r"2 of 2 users were gone.*\n(?s:.*)cannot be reached"):
        by_locust("ws://127.0.0.1:9", 1, 2, 2)
