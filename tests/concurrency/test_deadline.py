"""Deadlines and the three waits that draw on them."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from rtvi_sync.concurrency import deadline as module
from rtvi_sync.concurrency.deadline import Deadline, join_thread, slice_of, wait_for_event, wait_for_lock

LIMIT = 5.0


class Clock:
    """A `time` module whose time stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """Time that the test sets."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_what_remains_shrinks_to_zero_and_not_below(clock):
    """`remaining()` counts down to 0, and `expired` begins there."""
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
    assert deadline.sooner(3.0) == 3.0


def test_the_sooner_of_two_limits(clock):
    """`sooner()` is the smaller of its argument and what remains."""
    deadline = Deadline(2.0)
    assert deadline.sooner(5.0) == 2.0
    assert deadline.sooner(1.0) == 1.0
    clock.now += 3
    assert deadline.sooner(1.0) == 0.0


def test_nan_is_no_limit():
    """A limit that is not a number is refused: every comparison with it would be false, and the wait without end."""
    with pytest.raises(ValueError, match="NaN"):
        Deadline(float("nan"))


@pytest.mark.parametrize("timeout", [None, 0.0, 1.0, 1e12, float("inf")])
def test_a_slice_is_one_that_the_platform_can_wait(timeout):
    """Whatever the limit, a single wait of it fits what a lock of this platform takes."""
    assert 0.0 <= slice_of(timeout) <= threading.TIMEOUT_MAX


def test_waits_return_what_they_waited_for():
    """A free lock, a set event and an ended thread are seen at once, even when the limit has passed."""
    over = Deadline(0.0)
    lock, event, thread = threading.Lock(), threading.Event(), threading.Thread(target=int)
    event.set()
    thread.start()
    thread.join()
    assert wait_for_lock(lock, over)
    assert lock.locked()
    assert wait_for_event(event, over)
    assert join_thread(thread, over)


def test_waits_give_up_at_the_limit():
    """A lock that stays taken, an event that is never set and a thread that runs on are given up."""
    lock, event, stop = threading.Lock(), threading.Event(), threading.Event()
    lock.acquire()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    assert not wait_for_lock(lock, Deadline(0.01))
    assert not wait_for_event(event, Deadline(0.01))
    assert not join_thread(thread, Deadline(0.01))
    stop.set()
    assert join_thread(thread, Deadline(LIMIT))


@pytest.mark.parametrize("timeout", [None, 1e12, float("inf"), LIMIT])
def test_waits_are_ended_by_the_other_thread(timeout):
    """Waits without a limit, or with one that no platform can wait in one go, return when the other side is done."""
    lock, event = threading.Lock(), threading.Event()
    lock.acquire()

    def finish():
        event.set()
        lock.release()

    thread = threading.Thread(target=finish)
    thread.start()
    assert wait_for_event(event, Deadline(timeout))
    assert wait_for_lock(lock, Deadline(timeout))
    assert join_thread(thread, Deadline(timeout))


def test_sliced_waits_go_on_until_the_limit(monkeypatch):
    """Where waits are sliced (Windows), the end of a slice is not the end of the wait."""
    monkeypatch.setattr(module, "_SLICE", 0.001)
    lock, event, stop = threading.Lock(), threading.Event(), threading.Event()
    lock.acquire()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    for wait in (
        lambda: wait_for_lock(lock, Deadline(0.05)),
        lambda: wait_for_event(event, Deadline(0.05)),
        lambda: join_thread(thread, Deadline(0.05)),
    ):
        began = time.monotonic()
        assert not wait()
        assert time.monotonic() - began >= 0.05
    stop.set()
    assert join_thread(thread, Deadline(None))


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="the platform cannot send a signal to a thread")
@pytest.mark.parametrize("what", ["lock", "event", "thread"])
def test_ctrl_c_interrupts_a_wait_without_limit(what):
    """The handler of a signal runs while the main thread waits, and its exception ends the wait."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    lock = threading.Lock()
    lock.acquire()
    waits = {
        "lock": lambda: wait_for_lock(lock, Deadline(None)),
        "event": lambda: wait_for_event(threading.Event(), Deadline(None)),
        "thread": lambda: join_thread(thread, Deadline(None)),
    }

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.main_thread().ident
    assert main is not None
    # The signal may come before the wait has begun: then too it interrupts this block.
    sender = threading.Thread(target=lambda: signal.pthread_kill(main, signal.SIGUSR1))

    def wait_and_be_interrupted() -> None:
        sender.start()
        waits[what]()

    try:
        with pytest.raises(KeyboardInterrupt):
            wait_and_be_interrupted()
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
        stop.set()
        thread.join()
