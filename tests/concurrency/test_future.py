"""The result of work on another thread."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


def test_the_first_outcome_counts():
    """A later result or error is ignored."""
    future: Future[str] = Future()
    future.resolve("first")
    future.resolve("second")
    future.reject(KeyError())
    assert future.wait(Deadline(0.0))
    assert future.result() == "first"


def test_an_error_is_raised():
    """`result()` raises the error that the future was rejected with."""
    future: Future[str] = Future()
    future.reject(KeyError("no"))
    future.resolve("late")
    assert future.wait(Deadline(0.0))
    with pytest.raises(KeyError, match="no"):
        future.result()


def test_a_result_may_be_none():
    """None is a result like any other."""
    future: Future[None] = Future()
    future.resolve(None)
    assert future.wait(Deadline(0.0))
    assert future.result() is None


def test_the_deadline_passes():
    """`wait()` returns False, and the future may be waited for again."""
    future: Future[str] = Future()
    assert not future.wait(Deadline(0.01))
    future.resolve("x")
    assert future.wait(Deadline(0.0))


def test_it_wakes_the_thread_that_waits():
    """The thread wakes as soon as there is an outcome."""
    future: Future[str] = Future()
    results: list[str] = []

    def wait() -> None:
        assert future.wait(Deadline(None))
        results.append(future.result())

    thread = threading.Thread(target=wait)
    thread.start()
    future.resolve("x")
    thread.join(GUARD)
    assert results == ["x"]


def test_an_interrupt_while_it_is_set(monkeypatch):
    """Ctrl-C is raised, and the waiting thread still wakes."""
    future: Future[str] = Future()
    notified: list[None] = []

    def notify_all(_: object) -> None:
        notified.append(None)
        if len(notified) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Future, "notify_all", notify_all)
    with pytest.raises(KeyboardInterrupt):
        future.resolve("x")
    assert len(notified) == 2
    assert future.result() == "x"
