"""What follows from the table of docs/scaling.md, and that each row is of as many sessions as it says."""

from __future__ import annotations

import time
from typing import Any

import attrs
import pytest

from benchmarks.held import client_of, hold
from benchmarks.locust_workers import Held, by_locust, in_one_process, table, users_at

ROW = Held(workers=1, sessions=50, cpu=0.18, rss_kb=200.0, requests=(1.0, 9.0), gaps=(22.0, 43.0), real_time=1.0)


def row(sessions: int, **changes: Any) -> Held:
    """Of so many sessions; else all is well with it."""
    return attrs.evolve(ROW, sessions=sessions, **changes)


def test_a_large_test_is_reckoned_by_what_one_worker_held_well() -> None:
    """Not by what was too much for it, nor by what others held."""
    bad = [row(125, cpu=0.71), row(150, gaps=(23.0, 160.0)), row(175, real_time=0.99)]
    text = table([row(200, workers=0), row(50), row(100, cpu=0.33), *bad, row(400, workers=4)])

    assert "**100 sessions**, on 33 % of a core" in text
    assert "1,000 workers" in text
    assert "20 GB of\nmemory besides 100 GB" in text
    assert "\n| `run_many()`, one process | 200 |" in text
    assert "\n| Locust, 1 worker | 50 |" in text
    assert "\n| Locust, 4 workers | 400 |" in text


def test_nothing_is_reckoned_by_what_went_badly() -> None:
    """A machine that was busy with something else gives no figure for anybody to plan by."""
    with pytest.raises(RuntimeError, match="held none of its rows well"):
        table([row(50, real_time=0.9), row(50, workers=2)])


def test_users_are_counted_before_the_end() -> None:
    """Locust takes them away at the end; a line is of somewhere in its second."""
    history = [{"Timestamp": str(second), "User Count": str(users)} for second, users in ((7, 3), (8, 4), (9, 0))]

    assert users_at(history, 9.5) == 4
    assert users_at(history, 8.9) == 3
    assert users_at(history, 7.5) == 0


def test_looks_before_a_session_has_settled_are_left_out(url: str) -> None:
    """They would tell of connecting."""
    with client_of(url) as client:
        now = time.monotonic()
        looks = hold(client, now + 3, now + 3.5)

    assert len(looks) == 1


def test_a_row_of_one_process(url: str) -> None:
    """All its figures are there."""
    held = in_one_process(url, 2, 2.5)

    assert 0.5 < held.real_time <= 1
    assert 0 < held.requests[0] <= held.requests[1] < 1000
    assert 10 < held.gaps[0] <= held.gaps[1] < 1000


def test_a_row_of_locust(url: str) -> None:
    """All its figures are there."""
    held = by_locust(url, 1, 2, 4)

    assert 0.5 < held.real_time <= 1
    assert 0 < held.requests[0] <= held.requests[1] < 1000
    assert 10 < held.gaps[0] <= held.gaps[1] < 1000


def test_users_who_are_gone_are_no_row() -> None:
    """What the others cost would be divided among too many."""
    with pytest.raises(RuntimeError, match=r"2 of 2 users were gone.*\n(?s:.*)cannot be reached"):
        by_locust("ws://127.0.0.1:9", 1, 2, 2)
