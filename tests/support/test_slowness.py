"""The clock that does not count the machine's other work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import slowness
from tests.support.slowness import GUARD, LIMITS, at_some_limit, takes


class SteppedMetronome:
    """Has made a given number of rounds at each question."""

    def __init__(self, *rounds: int) -> None:
        self._rounds = iter(rounds)

    def ask(self, question: bytes) -> int:
        return next(self._rounds)


Own = tuple[slowness.Metronome, "subprocess.Popen[bytes]", str]


@pytest.fixture
def own() -> Iterator[Own]:
    """Yield a metronome of the test's own, its process, and its address."""
    address, process = slowness.start_metronome()
    metronome = slowness.Metronome(address)
    yield metronome, process, address
    metronome.close()
    process.communicate()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Yield the real times at which a block starts and ends, and the seconds that a metronome counts between: 2.5."""
    moments = [100.0, 110.0]
    clock = SteppedMetronome(7, 7 + round(2.5 / slowness._ROUND_SECONDS))
    monkeypatch.setattr(slowness, "metronome", lambda: clock)
    monkeypatch.setattr(time, "monotonic", lambda: moments.pop(0))
    return moments


def test_time_of_others_does_not_count(steps: list[float]) -> None:
    """Of 10 s a busy machine gave 2.5: less than 3 were taken."""
    with takes(3.0):
        pass


def test_too_long(steps: list[float]) -> None:
    """A block that takes too long fails, even if one stall is not counted."""
    with pytest.raises(AssertionError, match=r"it took 10\.00 s, 2\.50 s on an idle machine, more than 1 s"), takes(1):
        pass


def test_a_fast_machine_counts_real_time(steps: list[float]) -> None:
    """The metronome is ahead of real time: that counts."""
    steps[1] = 101.0
    with takes(1.5):
        pass


def test_too_short(steps: list[float]) -> None:
    """A least time is real time, which no load makes shorter."""
    with takes(20.0, at_least=10.0):
        pass


def test_less_than_the_least(steps: list[float]) -> None:
    """A block that takes less than its least time fails, too."""
    with pytest.raises(AssertionError, match=r"it took 10\.000 s, less than 11 s"), takes(20.0, at_least=11.0):
        pass


def test_what_the_block_raises_is_not_hidden() -> None:
    """An exception passes, whatever the limit."""
    with pytest.raises(LookupError), takes(0.0):
        raise LookupError


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the time of a process on Linux only")
def test_the_metronome_leaves_the_processor_to_tests_that_last(own: Own) -> None:
    """The metronome computes for at most a second and a part of the rest, and its clock goes on in its pauses."""
    metronome, process, _ = own

    def computed() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def speeds() -> tuple[float, float]:
        """Return the rounds in a second, before there are pauses and then."""
        first, began = metronome.ask(b"+"), time.monotonic()
        threading.Event().wait(0.9 * slowness._WITHOUT_PAUSE)
        second, pausing = metronome.ask(b"?"), time.monotonic()
        threading.Event().wait(2 * slowness._WITHOUT_PAUSE)
        third, end = metronome.ask(b"-"), time.monotonic()
        took = computed() - before
        assert took <= slowness._WITHOUT_PAUSE + (end - began - slowness._WITHOUT_PAUSE) / 2
        return (second - first) / (pausing - began), (third - second) / (end - pausing)

    for _ in range(5):  # other programs may start or end in this time
        before = computed()
        without, with_pauses = speeds()
        if with_pauses > without / 2:  # a fifth, if its pauses did not count
            return
    raise AssertionError("the clock is slower in pauses")


def test_the_first_limit_that_the_machine_keeps_is_enough() -> None:
    """Longer ones are not tried; code that fails with each of them fails, with the last error."""
    tried: list[float] = []

    def check(limit: float, least: float) -> None:
        tried.append(limit)
        assert limit >= least, f"not within {limit:g} s"

    at_some_limit(lambda limit: check(limit, LIMITS[1]))
    assert tried == [*LIMITS[:2]]
    with pytest.raises(AssertionError, match=f"not within {LIMITS[-1]:g} s"):
        at_some_limit(lambda limit: check(limit, GUARD))


def test_the_metronome_counts_while_a_block_is_timed_and_rests_after(own: Own) -> None:
    """The metronome makes rounds while at least one of two overlapping blocks lasts, and none afterwards."""
    ask = own[0].ask
    before = ask(b"+")
    ask(b"+")
    ask(b"-")
    while ask(b"?") < before + 3:
        threading.Event().wait(0.001)
    rounds = ask(b"-")
    threading.Event().wait(0.02)
    assert ask(b"?") == rounds


def test_a_process_that_is_gone_times_no_block(own: Own) -> None:
    """The metronome rests when the process that has started a block closes its connection."""
    address = own[2]
    other = slowness.Metronome(address)
    other.ask(b"+")
    other.close()
    ask = own[0].ask
    before = -1
    while (rounds := ask(b"?")) != before:
        before = rounds
        threading.Event().wait(0.02)
