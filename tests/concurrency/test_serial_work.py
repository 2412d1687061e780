"""Work that is asked for: done after each call, never on two threads at once."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.concurrency.serial_work import SerialWork
from tests.support.slowness import GUARD
from tests.support.waiting import until

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("way", ["call", "call_soon"])
def test_it_is_done_after_each_call(workers, way):
    """The work sees all that a thread has prepared before the call, even if it is running at that moment."""
    given, taken = [0], [0]

    def take() -> None:
        taken[0] = given[0]

    work = SerialWork(take, workers)
    for number in range(2000):
        given[0] = number
        getattr(work, way)()
        if number % 10 == 0:
            until(lambda: taken[0] == given[0])
    until(lambda: taken[0] == given[0])


def test_it_runs_on_one_thread_at_a_time(workers):
    """Four threads call it, and no two workers are ever in it."""
    inside, most, done = [0], [0], [0]

    def count() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        done[0] += 1
        inside[0] -= 1

    def call() -> None:
        for _ in range(500):
            work.call()

    work = SerialWork(count, workers)
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    until(lambda: work.runner is None)
    assert most == [1]
    assert 1 <= done[0] <= 2000


def test_calls_meanwhile_become_one(workers):
    """A hundred calls while it runs are one more run, on the same thread."""
    begun, let_go = threading.Event(), threading.Event()
    runs: list[threading.Thread] = []

    def run() -> None:
        runs.append(threading.current_thread())
        begun.set()
        assert let_go.wait(GUARD)

    work = SerialWork(run, workers)
    work.call()
    assert begun.wait(GUARD)
    assert work.runner is runs[0]
    for _ in range(100):
        work.call()
    let_go.set()
    until(lambda: work.runner is None)
    assert runs == [runs[0]] * 2


def test_work_that_blocks_holds_up_nothing_else(workers):
    """Other work of the same workers is done while one blocks."""
    let_go, done = threading.Event(), threading.Event()
    blocked = [SerialWork(lambda: let_go.wait(GUARD), workers) for _ in range(3)]
    for work in blocked:
        work.call()
    SerialWork(done.set, workers).call()
    assert done.wait(GUARD)
    let_go.set()


@pytest.mark.parametrize("failure", [ValueError, SystemExit])
def test_an_exception_is_logged_and_ends_nothing(workers, failure, caplog):
    """The next call runs it again."""
    runs = []

    def fail() -> None:
        runs.append(1)
        raise failure("it failed")

    work = SerialWork(fail, workers)
    for number in (1, 2):
        work.call()
        until(lambda: len(runs) == number and work.runner is None)  # noqa: B023
    assert [record.exc_info[0] for record in caplog.records] == [failure] * 2
