"""The soak: a short one for real, and its judgement, which finds growth."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import BotNotReadyError
from tests.support.slowness import GUARD
from tools.soak.ledger import GRACE, Ledger, UserError
from tools.soak.measure import ARENA, Sample, judge, read

ROOT = Path(__file__).resolve().parents[3]
MINUTE = 60.0


def an_hour(**changes: Callable[[float], float]) -> list[Sample]:
    """Return samples of one hour, three quiet moments a minute, with noise; `changes` adds values at given times."""
    rng = random.Random(1)
    quiet = [
        Sample(
            seconds=seconds,
            moment="quiet",
            round=number,
            rss_bytes=60_000_000 + 10_000_000 * number // 180,
            outside_bytes=50_000_000 + rng.randint(-400_000, 400_000),
            heap_bytes=9_000_000 + rng.randint(-2_000, 2_000),
            blocks=200_000 + rng.randint(-50, 50),
            fds=9,
            sockets=1,
            threads=2,
            gc_objects=50_000 + rng.randint(-20, 20),
            sessions=number,
            calls=number,
            faults=number,
        )
        for number, seconds in enumerate(range(20, 3600, 20))
    ]
    live = attrs.evolve(quiet[90], moment="live", rss_bytes=90_000_000, fds=50, sockets=40, threads=30, gc_objects=0)

    def grow(sample: Sample) -> Sample:
        more: dict[str, Any] = {
            name: int(getattr(sample, name) + change(sample.seconds / 3600)) for name, change in changes.items()
        }
        return attrs.evolve(sample, **more)

    grown = [grow(sample) for sample in quiet]
    return sorted([*grown, live], key=lambda sample: sample.seconds)


def bad(samples: list[Sample]) -> list[str]:
    """Return the quantities that have grown too much."""
    return [verdict.text.partition(":")[0] for verdict in judge(samples) if not verdict.good]


@pytest.mark.matrix
def test_a_short_soak(tmp_path: Path) -> None:
    """A few sessions of it: they, calls and faults are counted, nothing is left, a table and a plot are written."""
    words = ["--minutes", "0.1", "--sessions", "11", "--round-seconds", "3", "--seed", "4", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tools.soak", *words],
        capture_output=True,
        text=True,
        timeout=4 * GUARD,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(tmp_path)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all is well\n")
    assert (tmp_path / "soak.txt").read_text(encoding="utf-8") == done.stdout
    samples = read(tmp_path / "soak.csv")
    assert {sample.moment for sample in samples} == {"quiet", "live"}
    last = samples[-1]
    assert last.moment == "quiet"
    assert last.sessions > 10
    assert last.calls > last.sessions
    assert last.faults > 0
    assert last.threads < max(sample.threads for sample in samples)
    svg = (tmp_path / "soak.svg").read_text(encoding="utf-8")
    assert "RSS, MB" in svg


def test_steady_is_good() -> None:
    """Noise around a constant is no growth. The same holds for a value from before the end of the warm-up, for a live
    moment, and for unused memory in the heaps of the C library.
    """
    assert bad(an_hour()) == []
    assert bad(an_hour(outside_bytes=lambda hour: -20e6 if hour < 0.19 else 0)) == []


@pytest.mark.parametrize("name", ["outside_bytes", "heap_bytes", "blocks", "gc_objects"])
def test_steady_growth_is_seen(name: str) -> None:
    """4 % in the noise is found; less than 1 % passes."""
    whole = getattr(an_hour()[0], name)
    assert bad(an_hour(**{name: lambda hour: 0.05 * whole * hour})) == [name]
    assert bad(an_hour(**{name: lambda hour: 0.005 * whole * hour})) == []


def test_one_more_arena_is_no_growth() -> None:
    """Memory outside the heaps of the C library may grow by one arena of Python's at any time, and not by two."""
    assert bad(an_hour(outside_bytes=lambda hour: ARENA * (hour > 0.25))) == []
    assert bad(an_hour(outside_bytes=lambda hour: ARENA * (hour > 0.6))) == []
    assert bad(an_hour(outside_bytes=lambda hour: ARENA * (hour > 0.9))) == []
    assert bad(an_hour(outside_bytes=lambda hour: 2 * ARENA * (hour > 0.6))) == ["outside_bytes"]


@pytest.mark.parametrize("name", ["fds", "sockets", "threads"])
def test_one_too_many_is_seen(name: str) -> None:
    """A single descriptor, socket or thread more than after the warm-up is reported, even if only for a moment."""
    assert bad(an_hour(**{name: lambda hour: 0.5 < hour < 0.51})) == [name]


def test_nothing_measured_is_not_good() -> None:
    """A run without a single quiet moment proves nothing."""
    assert bad([]) == ["nothing was measured"]


def test_errors_of_the_package_are_counted_and_others_blamed() -> None:
    """An exported error with a text is counted; any other is a violation."""
    ledger = Ledger()

    def fail(error: Exception) -> None:
        with ledger.call("send_text", 1.0):
            raise error

    fail(BotNotReadyError("call connect() first"))
    assert (ledger.wrong, ledger.errors.total(), ledger.calls.total()) == ([], 1, 1)
    fail(BotNotReadyError(""))
    fail(OSError("bad descriptor"))
    assert ["has no text" in ledger.wrong[0], "bad descriptor" in ledger.wrong[1]] == [True, True]


def test_logged_errors_that_no_user_has_raised_are_blamed() -> None:
    """A log record with an error of the package or of a user is counted; any other is a violation, with its trace."""
    ledger = Ledger()

    def log(error: Exception) -> None:
        try:
            raise error
        except Exception:
            record = logging.LogRecord("rtvi_sync", logging.ERROR, "", 0, "It raised", None, sys.exc_info())
        ledger.emit(record)

    log(UserError("sorry"))
    log(BotNotReadyError("call connect() first"))
    assert ledger.wrong == []
    log(RuntimeError("changed size"))
    assert "It raised: Traceback" in ledger.wrong[0]
    assert ledger.logged.total() == 3


def test_a_call_that_takes_too_long_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that exceeds its limit plus the allowance for a busy machine is reported."""
    ledger = Ledger()
    times = iter((100.0, 101.0 + GRACE - 0.1, 200.0, 201.0 + GRACE + 0.1))
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    with ledger.call("connect", 1.0):
        pass
    assert ledger.wrong == []
    with ledger.call("connect", 1.0):
        pass
    assert "connect took" in ledger.wrong[0]
