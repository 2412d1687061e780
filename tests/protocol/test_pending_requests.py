"""Requests that wait for their answers."""

from __future__ import annotations

import contextlib
import random
import threading
from typing import Any

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from rtvi_sync.messages import RTVIMessage
from rtvi_sync.protocol.pending_requests import PendingRequests
from tests.support import limits
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


class LostError(Exception):
    """The connection is gone."""


def request(pending: PendingRequests, id_: str) -> Future[Any]:
    """Add a request, and return the future that its call waits for."""
    future: Future[Any] = Future()
    pending.add(id_, "client-message", future)
    return future


def answer(pending: PendingRequests, id_: str, outcome: Any) -> bool:
    """Answer a request, with a message or an error; return whether a call waits for it."""
    taken = pending.take(id_)
    if taken is None or taken.waiter is None:
        return False
    (taken.waiter.reject if isinstance(outcome, BaseException) else taken.waiter.resolve)(outcome)
    return True


def test_answers_out_of_order_reach_their_callers():
    """Each caller gets the answer to its own id, in whichever order the answers arrive."""
    pending = PendingRequests()
    ids = [str(n) for n in range(50)]
    futures = {id_: request(pending, id_) for id_ in ids}
    results: dict[str, Any] = {}
    all_there = threading.Barrier(len(ids) + 1)

    def call(id_: str) -> None:
        all_there.wait(GUARD)
        assert futures[id_].wait(Deadline(GUARD))
        results[id_] = futures[id_].result()

    threads = [threading.Thread(target=call, args=(id_,)) for id_ in ids]
    for thread in threads:
        thread.start()
    all_there.wait(GUARD)
    for id_ in random.Random(1).sample(ids, len(ids)):
        assert answer(pending, id_, int(id_))
    for thread in threads:
        thread.join(GUARD)
    assert results == {id_: int(id_) for id_ in ids}


def test_a_request_is_taken_once():
    """The first answer counts; one that is repeated, or has an unknown id, finds no request."""
    pending = PendingRequests()
    future = request(pending, "a")
    assert pending.type_of("a") == "client-message"
    assert answer(pending, "a", "first")
    assert pending.take("a") is None
    assert pending.take("unknown") is None
    assert pending.type_of("a") is None
    assert future.wait(Deadline(0.0))
    assert future.result() == "first"


def test_an_abandoned_request():
    """A call that gives up is forgotten, the type of its request is not; its id is free again."""
    pending = PendingRequests()
    future = request(pending, "a")
    pending.abandon("a", future)
    pending.abandon("a", future)
    assert pending.type_of("a") == "client-message"
    again = request(pending, "a")
    assert answer(pending, "a", "x")
    assert pending.take("a") is None
    assert (future.wait(Deadline(0.0)), again.wait(Deadline(0.0))) == (False, True)


def test_a_late_answer():
    """A late answer finds its abandoned request once, without a waiter."""
    pending = PendingRequests()
    pending.abandon("a", request(pending, "a"))
    taken = pending.take("a")
    assert taken is not None
    assert (taken.type, taken.waiter) == ("client-message", None)
    assert pending.take("a") is None


def test_an_id_is_waited_for_once():
    """Two calls cannot wait for the same id; the first one is unharmed by the second, and by its end."""
    pending = PendingRequests()
    first, second = request(pending, "a"), Future[RTVIMessage]()
    with pytest.raises(ValueError, match="'a'"):
        pending.add("a", "client-message", second)
    pending.abandon("a", second)
    assert answer(pending, "a", "x")
    assert first.wait(Deadline(0.0))


def test_a_message_with_the_id_of_a_request():
    """If a message without a waiter has the same id, the request goes on waiting."""
    pending = PendingRequests()
    future = request(pending, "a")
    pending.add("a", "client-message")
    assert pending.ids()
    assert answer(pending, "a", "x")
    assert future.wait(Deadline(0.0))
    assert pending.ids() == []


def test_what_is_not_awaited_is_bounded(monkeypatch):
    """The oldest requests without a waiter are forgotten first, those with a waiter never."""
    limits.patch(monkeypatch, unawaited=3)
    pending = PendingRequests()
    request(pending, "awaited")
    pending.add("awaited", "client-message")
    for n in range(5):
        pending.add(str(n), "client-message")
    assert pending.ids() == ["awaited", "2", "3", "4"]
    assert answer(pending, "awaited", "x")


def test_fail_all_ends_every_wait_with_an_error_of_its_own():
    """When the connection is lost each waiting call raises, and each its own exception object."""
    pending = PendingRequests()
    futures = [request(pending, str(n)) for n in range(20)]
    errors: list[BaseException] = []

    def call(future: Future[RTVIMessage]) -> None:
        assert future.wait(Deadline(None))
        try:
            future.result()
        except LostError as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(future,)) for future in futures]
    for thread in threads:
        thread.start()
    pending.fail_all(LostError)
    for thread in threads:
        thread.join(GUARD)
    assert len({id(error) for error in errors}) == 20
    assert pending.ids() == []


def test_after_fail_all_no_call_can_begin_to_wait():
    """A later `add()` of a waiter fails with the error of the first `fail_all()`; answers find no request."""
    pending = PendingRequests()
    pending.fail_all(LostError)
    pending.fail_all(ValueError)
    for _ in range(2):
        with pytest.raises(LostError):
            request(pending, "a")
    assert pending.take("a") is None
    pending.add("a", "client-message")
    assert pending.ids() == ["a"]


def test_every_wait_ends_exactly_once_under_contention():
    """Answers, refusals, abandoned calls and the end of the session race: every call ends, and none is left over."""
    pending = PendingRequests()
    rng = random.Random(2)
    ended: list[str] = []
    added: list[str] = []
    start = threading.Barrier(5)

    def call(name: str) -> None:
        start.wait(GUARD)
        for n in range(300):
            id_ = f"{name}-{n}"
            future: Future[Any] = Future()
            try:
                pending.add(id_, "client-message", future)
            except LostError:
                return
            added.append(id_)
            # Each tenth call has a time limit that may pass at the same time as its answer arrives.
            if future.wait(Deadline(GUARD if n % 10 else 0.0001)):
                with contextlib.suppress(LostError, KeyError):
                    assert future.result() == n
            else:
                assert not n % 10
            pending.abandon(id_, future)
            ended.append(id_)

    def respond() -> None:
        start.wait(GUARD)
        while len(ended) < 400:
            for id_ in added[-20:]:
                answer(pending, id_, int(id_.rpartition("-")[2]) if rng.random() < 0.5 else KeyError(id_))
        pending.fail_all(LostError)

    threads = [threading.Thread(target=call, args=(str(n),)) for n in range(4)]
    threads.append(threading.Thread(target=respond))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * GUARD)
        assert not thread.is_alive()
    assert sorted(ended) == sorted(added)
