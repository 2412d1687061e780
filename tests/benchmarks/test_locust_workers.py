"""The plan from the table of docs/background/many-sessions.md, and how many sessions are in each of its rows."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from benchmarks import held
from benchmarks.locust_workers import (
    Bot,
    Held,
    Storm,
    by_locust,
    can_part,
    in_one_process,
    page,
    running_bot,
    storm,
    table,
    users_at,
)
from benchmarks.results import Results
from rtvi_sync.testing import MeasuredClient

pytestmark = pytest.mark.matrix

ROW = Held(workers=1, sessions=50, cpu=0.18, rss_kb=200.0, requests=(1.0, 9.0), gaps=(22.0, 43.0), real_time=1.0)


def row(sessions: int, **changes: Any) -> Held:
    """Return a row of that many sessions, without faults."""
    return attrs.evolve(ROW, sessions=sessions, **changes)


def test_a_large_test_is_reckoned_by_what_one_worker_held_well() -> None:
    """A large test is calculated from the best row of one worker, not from overloaded rows or other workers."""
    bad = [row(125, cpu=0.71), row(150, gaps=(23.0, 160.0)), row(175, real_time=0.99)]
    stormy = Storm(sessions=500, seconds=10, failed=0, connects=(9.0, 80.0, 99.0), cpu=0.6, apart=True, tls=True)
    text = table([row(200, workers=0), row(50), row(100, cpu=0.33), *bad, row(400, workers=4)], [stormy])

    assert "**100 sessions**, on 33 % of a core" in text
    assert "| workers | 100, 100 sessions each |" in text
    assert "| cores | 105: " in text
    assert "| memory | 12 GB: " in text
    assert "| network, each way | 2.9 Gbit/s and 500,000 packets a second" in text
    assert "| ramp | `--spawn-rate 500`: all are there after 20 s; each worker starts 5.0 a second |" in text
    assert "| 500 in 10 s, bot on a core of its own, TLS | 0 | 9 ms | 80 ms | 99 ms | 60 % |" in text
    assert "\n| `run_many()`, one process | 200 |" in text
    assert "\n| Locust, 1 worker | 50 |" in text
    assert "\n| Locust, 4 workers | 400 |" in text


def test_nothing_is_reckoned_by_what_went_badly() -> None:
    """A machine that was busy with something else gives no figure to plan with."""
    with pytest.raises(RuntimeError, match="held none of its rows well"):
        table([row(50, real_time=0.9), row(50, workers=2)])


def test_a_row_says_where_the_bot_was() -> None:
    """A row names its conditions: a core of its own for the bot, or TLS."""
    text = table([row(50), row(100, apart=True, tls=True)])

    assert "\n| Locust, 1 worker, bot on a core of its own, TLS | 100 |" in text


def test_the_page_has_what_the_results_have() -> None:
    """The table stands between its marks, with the date and the machine; without results the page stays."""
    text = "before\n<!-- scaling:begin -->\nold\n<!-- scaling:end -->\nafter\n"
    results = Results(measured={"locust": "1 round, 2026-11-28"}, machines={"locust": {"processor": "slow"}})
    assert page(text, results) == text
    results.held = [attrs.asdict(row(50))]

    made = page(text, results)

    assert made.startswith("before\n<!-- scaling:begin -->\n| held by |")
    assert made.endswith("\nMeasured: 1 round, 2026-11-28; slow.\n<!-- scaling:end -->\nafter\n")


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
    check(by_locust(Bot(url=url), 1, 2, 4))


@pytest.mark.parametrize("tls", [False, True])
def test_a_storm_of_connects(tls: bool) -> None:
    """All sessions of a storm connect, also over TLS, and the bot may have a core of its own."""
    with running_bot(apart=can_part(), tls=tls) as bot:
        assert bot.url.startswith("wss://" if tls else "ws://")
        found = storm(bot, 10, 1)

    assert (found.sessions, found.failed) == (10, 0)
    assert 0 < found.connects[0] <= found.connects[1] <= found.connects[2]


def test_users_who_are_gone_are_no_row() -> None:
    """The remaining users' cost would be divided among too many."""
    with pytest.raises(RuntimeError, match=r"2 of 2 users were gone.*\n(?s:.*)cannot be reached"):
        by_locust(Bot(url="ws://127.0.0.1:9"), 1, 2, 2)
