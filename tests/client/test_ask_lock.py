"""The lock of the threads that ask."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from rtvi_sync import RequestTimeoutError, WouldDeadlockError
from rtvi_sync.client.ask_lock import AskLock
from rtvi_sync.concurrency.deadline import Deadline
from tests.support.probes import waiters
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def test_first_come_first_served() -> None:
    """Callers get the lock in the order of their calls; one that times out or raises does not block the others."""
    lock, order = AskLock(), list[int]()
    leave = threading.Event()

    def pass_through(number: int) -> None:
        with lock.hold(Deadline(GUARD)):
            order.append(number)

    def hold() -> None:
        with lock.hold(Deadline(GUARD)):
            leave.wait(GUARD)
            raise KeyError

    threads = [InThread(hold)]
    until(lambda: waiters(lock) == 1)
    for number in range(3):
        threads.append(InThread(partial(pass_through, number)))
        until(lambda: waiters(lock) == len(threads))
    with pytest.raises(RequestTimeoutError, match="Another thread"), lock.hold(Deadline(0.0)):
        pass
    leave.set()
    assert isinstance(threads[0].error(), KeyError)
    for thread in threads[1:]:
        thread.get()
    assert order == [0, 1, 2]
    assert waiters(lock) == 0


def test_a_signal_handler_does_not_wait_for_its_own_thread() -> None:
    """The thread that holds the lock cannot release it before the handler returns."""
    lock = AskLock()
    with lock.hold(Deadline(None)):
        with pytest.raises(WouldDeadlockError, match="signal handler"), lock.hold(Deadline(None)):
            pass
        assert waiters(lock) == 1
    assert waiters(lock) == 0
