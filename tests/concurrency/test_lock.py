"""A lock that signals cannot lose."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.concurrency.lock import new_lock
from tests.support.slowness import GUARD
from tests.support.strikes import Strikes, needs_timers
from tests.support.threads import running

pytestmark = pytest.mark.inside


def is_free(lock: threading.RLock) -> bool:
    """Return whether another thread can take `lock` now."""

    def take() -> bool:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with running(take) as outcome:
        return bool(outcome.get(timeout=GUARD))


def test_it_is_held_in_the_block() -> None:
    """Other threads wait for the block, and its own thread may enter twice."""
    lock = new_lock()
    with lock:
        with lock:
            assert not is_free(lock)
        assert not is_free(lock)
    assert is_free(lock)


def test_an_error_in_the_block_releases_it() -> None:
    """An exception passes through, and the lock is free."""
    lock = new_lock()
    with pytest.raises(ZeroDivisionError), lock:
        raise ZeroDivisionError
    assert is_free(lock)


@needs_timers
def test_a_signal_handler_that_raises_does_not_leave_it_locked() -> None:
    """Whenever an exception strikes the main thread, before the block, in it or behind it, the lock is free then."""
    lock = new_lock()

    def use() -> None:
        with lock:
            pass

    with Strikes() as strikes:
        for number in range(2000):
            strikes.strike(use)
            if number % 50 == 0:
                assert is_free(lock)
