"""Calls that wait for answers."""

from __future__ import annotations

import contextlib
import random
import threading

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.pending_requests import Pending, Waiter
from tests.support.slowness import GUARD

LIMIT = GUARD


class LostError(Exception):
    """The connection is gone."""


def test_answers_out_of_order_reach_their_callers():
    """Each caller gets the answer to its own id, in whatever order the answers come."""
    pending: Pending[int] = Pending()
    keys = [str(n) for n in range(50)]
    waiters = {key: pending.register(key) for key in keys}
    results: dict[str, int] = {}
    all_there = threading.Barrier(len(keys) + 1)

    def call(key: str) -> None:
        all_there.wait(LIMIT)
        assert waiters[key].wait(Deadline(LIMIT))
        results[key] = waiters[key].result()

    threads = [threading.Thread(target=call, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    all_there.wait(LIMIT)
    for key in random.Random(1).sample(keys, len(keys)):
        assert pending.resolve(key, int(key))
    for thread in threads:
        thread.join(LIMIT)
    assert results == {key: int(key) for key in keys}


def test_a_second_answer_is_nobodys():
    """The first answer counts; one that comes again, or to an unknown id, finds nobody."""
    pending: Pending[str] = Pending()
    waiter = pending.register("a")
    assert pending.resolve("a", "first")
    assert not pending.resolve("a", "second")
    assert not pending.reject("a", LostError())
    assert not pending.resolve("never asked", "x")
    assert waiter.wait(Deadline(0.0))
    assert waiter.result() == "first"


def test_a_refusal_is_raised():
    """A rejected call raises what it was rejected with."""
    pending: Pending[str] = Pending()
    waiter = pending.register("a")
    assert pending.reject("a", LostError("no"))
    assert waiter.wait(Deadline(0.0))
    with pytest.raises(LostError, match="no"):
        waiter.result()


def test_no_answer_in_time():
    """A call that gives up is forgotten: its answer is nobody's, and its id is free again."""
    pending: Pending[str] = Pending()
    waiter = pending.register("a")
    assert "a" in pending
    assert not waiter.wait(Deadline(0.01))
    pending.discard("a")
    pending.discard("a")
    assert "a" not in pending
    assert not pending.resolve("a", "late")
    assert not pending.register("a").wait(Deadline(0.0))


def test_an_id_is_waited_for_once():
    """Two calls cannot wait for the same id; the first one is unharmed."""
    pending: Pending[str] = Pending()
    waiter = pending.register("a")
    with pytest.raises(ValueError, match="'a'"):
        pending.register("a")
    assert pending.resolve("a", "x")
    assert waiter.wait(Deadline(0.0))


def test_an_answer_may_be_none():
    """None is an answer like any other."""
    pending: Pending[None] = Pending()
    waiter = pending.register("a")
    pending.resolve("a", None)
    assert waiter.wait(Deadline(0.0))
    assert waiter.result() is None


def test_fail_all_wakes_every_caller_with_an_error_of_its_own():
    """When the line dies each waiting call raises, and each its own exception object."""
    pending: Pending[str] = Pending()
    waiters = [pending.register(str(n)) for n in range(20)]
    errors: list[BaseException] = []

    def call(waiter: Waiter[str]) -> None:
        assert waiter.wait(Deadline(None))
        try:
            waiter.result()
        except LostError as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(waiter,)) for waiter in waiters]
    for thread in threads:
        thread.start()
    assert pending.fail_all(LostError) == 20
    for thread in threads:
        thread.join(LIMIT)
    assert len({id(error) for error in errors}) == 20
    assert pending.fail_all(LostError) == 0


def test_after_fail_all_nobody_can_begin_to_wait():
    """A later `register()` fails with what the first `fail_all()` was given; answers find nobody."""
    pending: Pending[str] = Pending()
    pending.fail_all(LostError)
    pending.fail_all(ValueError)
    for _ in range(2):
        with pytest.raises(LostError):
            pending.register("a")
    assert not pending.resolve("a", "x")
    assert "a" not in pending


def test_every_call_is_settled_exactly_once_under_contention():
    """Answers, refusals and the end of the session race: no waiter is forgotten, none is settled twice."""
    pending: Pending[int] = Pending()
    rng = random.Random(2)
    settled: list[str] = []
    registered: list[str] = []
    start = threading.Barrier(5)

    def call(name: str) -> None:
        start.wait(LIMIT)
        for n in range(300):
            key = f"{name}-{n}"
            try:
                waiter = pending.register(key)
            except LostError:
                return
            registered.append(key)
            assert waiter.wait(Deadline(LIMIT))
            with contextlib.suppress(LostError, KeyError):
                assert waiter.result() == n
            settled.append(key)

    def answer() -> None:
        start.wait(LIMIT)
        while len(settled) < 400:
            for key in registered[-20:]:
                if rng.random() < 0.5:
                    pending.resolve(key, int(key.rpartition("-")[2]))
                else:
                    pending.reject(key, KeyError(key))
        pending.fail_all(LostError)

    threads = [threading.Thread(target=call, args=(str(n),)) for n in range(4)]
    threads.append(threading.Thread(target=answer))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LIMIT)
        assert not thread.is_alive()
    assert sorted(settled) == sorted(registered)
    assert not any(key in pending for key in registered)
