"""Deadlines, and joining a thread by one."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from rtvi_sync.concurrency import deadline as module
from rtvi_sync.concurrency.deadline import Deadline, join_thread, slice_of
from tests.support import limits
from tests.support.slowness import GUARD
from tests.support.threads import running

pytestmark = pytest.mark.inside


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Time that the test sets."""
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock.monotonic)
    return clock


def test_what_remains_shrinks_to_zero_and_not_below(clock):
    """`remaining()` counts down to 0; from there on `expired` is True."""
    deadline = Deadline(2.0)
    assert (deadline.remaining(), deadline.elapsed(), deadline.expired) == (2.0, 0.0, False)
    clock.now += 1.5
    assert (deadline.remaining(), deadline.elapsed(), deadline.expired) == (0.5, 1.5, False)
    clock.now += 0.5
    assert (deadline.remaining(), deadline.expired) == (0.0, True)
    clock.now += 5
    assert (deadline.remaining(), deadline.elapsed(), deadline.expired) == (0.0, 7.0, True)


def test_without_a_limit_nothing_expires(clock):
    """None means no limit, however late it gets."""
    deadline = Deadline(None)
    clock.now += 1e9
    assert deadline.remaining() is None
    assert not deadline.expired
    assert deadline.elapsed() == 1e9
    assert deadline.at_most(3.0) == 3.0


def test_the_smaller_of_two_limits(clock):
    """`at_most()` is the smaller of its argument and the remaining time."""
    deadline = Deadline(2.0)
    assert deadline.at_most(5.0) == 2.0
    assert deadline.at_most(1.0) == 1.0
    clock.now += 3
    assert deadline.at_most(1.0) == 0.0


def test_nan_is_no_limit():
    """A limit that is not a number is refused: every comparison with it would be false, and the wait without end."""
    with pytest.raises(ValueError, match="NaN"):
        Deadline(float("nan"))


@pytest.mark.parametrize("timeout", [None, 0.0, 1.0, 1e12, float("inf")])
def test_a_slice_is_one_that_the_platform_can_wait(timeout):
    """A single wait is never longer than a lock of this platform accepts, for any limit."""
    with running(lambda: slice_of(timeout)) as elsewhere:
        assert 0.0 <= elsewhere.get() <= threading.TIMEOUT_MAX


def test_the_main_thread_looks_up_now_and_then():
    """A signal that no wait is interrupted by is seen soon; other threads see none, and need not wake."""
    assert 0.1 <= slice_of(None) == slice_of(1e12) <= 1.0
    with running(lambda: slice_of(None)) as elsewhere:
        assert elsewhere.get() == threading.TIMEOUT_MAX


def test_an_ended_thread_is_seen_after_the_limit():
    """A thread that has ended is seen at once, even when the limit has passed."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert join_thread(thread, Deadline(0.0))


@pytest.mark.parametrize("piece", [None, 0.001], ids=["whole", "sliced"])
def test_a_thread_that_runs_on_is_given_up_at_the_limit(monkeypatch, piece):
    """join_thread() does not return before its limit, even where waits are sliced (Windows)."""
    if piece is not None:
        limits.patch(monkeypatch, deadline_slice=piece)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    began = time.monotonic()
    assert not join_thread(thread, Deadline(0.05))
    assert time.monotonic() - began >= 0.05
    stop.set()
    assert join_thread(thread, Deadline(GUARD))


@pytest.mark.parametrize("timeout", [None, 1e12, float("inf"), GUARD])
def test_a_join_of_any_length(timeout):
    """Waits without a limit, or with one that no platform can wait in one go, return when the thread has ended."""
    thread = threading.Thread(target=int)
    thread.start()
    assert join_thread(thread, Deadline(timeout))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the platform cannot send a signal to a thread")
def test_ctrl_c_interrupts_a_join_without_limit():
    """The handler of a signal runs while the main thread waits, and its exception ends the wait."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    # The signal may arrive before the wait has started: then too it interrupts this block.
    sender = threading.Thread(target=lambda: signal.pthread_kill(main, signal.SIGUSR1))

    def wait_and_be_interrupted() -> None:
        sender.start()
        join_thread(thread, Deadline(None))

    try:
        with pytest.raises(KeyboardInterrupt):
            wait_and_be_interrupted()
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        stop.set()
        thread.join()
