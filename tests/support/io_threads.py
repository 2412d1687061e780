"""An I/O thread of a test's own, and calls on it."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.concurrency.io_thread import IOThread
from tests.support.slowness import GUARD


@pytest.fixture
def io():
    """Yield an I/O thread, which has ended after the test."""
    thread = IOThread()
    yield thread
    thread.close()
    thread.thread.join(GUARD)
    assert not thread.thread.is_alive()


def hold(io: IOThread) -> threading.Event:
    """Block the I/O thread until the returned event is set."""
    reached, go_on = threading.Event(), threading.Event()

    def block() -> None:
        reached.set()
        go_on.wait(GUARD)

    io.call(block)
    assert reached.wait(GUARD)
    return go_on


def on(io: IOThread, function):
    """Return the result of `function()` on the I/O thread."""
    done, results = threading.Event(), []

    def command() -> None:
        try:
            results.append(function())
        finally:
            done.set()

    io.call(command)
    assert done.wait(GUARD), "the I/O thread does not answer"
    return results[0]


def timers(io: IOThread) -> int:
    """Return how many timers an I/O thread has, without its own for the check of its descriptors."""
    return int(on(io, lambda: len(io._timers) - 1))


def later_calls(io: IOThread) -> int:
    """Return how many calls an I/O thread will make later, without its own check of its descriptors."""
    return int(on(io, lambda: sum(timer.call is not None for *_, timer in io._timers) - 1))


def waiting_calls(io: IOThread) -> int:
    """Return how many functions wait for an I/O thread, while it runs this one."""
    return int(on(io, lambda: len(io._commands)))
