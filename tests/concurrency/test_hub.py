"""The hub: shared threads, counted by their users."""

from __future__ import annotations

import random
import threading

import pytest

from rtvi_sync.concurrency import hub as module
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.hub import acquire_hub
from rtvi_sync.concurrency.lanes import Lane

from ..conftest import package_threads
from ..forking import in_child
from ..loopback import LIMIT, running


def test_users_share_one_hub():
    """All users of the process get the same hub, and its io thread is one."""
    hubs = [acquire_hub() for _ in range(5)]
    assert len(set(map(id, hubs))) == 1
    assert len([t for t in package_threads() if t.name.startswith("rtvi-io-")]) == 1
    assert [hub.release() for hub in hubs] == [False] * 4 + [True]
    assert hubs[0].join(Deadline(LIMIT)) == []


def test_the_last_release_retires_the_hub_for_good():
    """After the last release the next user gets a new hub, even while the threads of the old one are still there."""
    first = acquire_hub()
    held = threading.Event()
    first.io.call(lambda: held.wait(LIMIT))
    assert first.release()
    second = acquire_hub()
    assert second is not first
    assert first.io.thread.is_alive()
    held.set()
    assert first.join(Deadline(LIMIT)) == []
    done = threading.Event()
    second.io.call(done.set)
    assert done.wait(LIMIT)
    assert second.release()
    assert second.join(Deadline(LIMIT)) == []


def test_all_threads_are_gone_after_join():
    """io thread, lane workers and pacer have ended when `join()` returns."""
    hub = acquire_hub()
    lane, ran, paced = Lane(), threading.Event(), threading.Event()
    lane.post(ran.set, hub.workers)
    hub.pacer.add(lambda now: paced.set(), hub.pacer.now())
    assert ran.wait(LIMIT)
    assert paced.wait(LIMIT)
    assert {t.name.split("-")[1] for t in package_threads()} == {"io", "lane", "pacer"}
    assert hub.release()
    assert hub.join(Deadline(LIMIT)) == []
    assert package_threads() == set()


def test_join_tells_who_is_late():
    """A thread that outlives the limit is returned, and nobody waits longer for it."""
    hub = acquire_hub()
    lane, begun, let_go = Lane(), threading.Event(), threading.Event()
    lane.post(lambda: (begun.set(), let_go.wait(LIMIT)), hub.workers)
    assert begun.wait(LIMIT)
    assert hub.release()
    (late,) = hub.join(Deadline(0.05))
    assert late.name.startswith("rtvi-lane-")
    let_go.set()
    assert hub.join(Deadline(LIMIT)) == []


def test_join_on_a_thread_of_the_hub_does_not_wait_for_itself():
    """A lane worker or the io thread may release and join: it waits for the others only."""
    for where in ("io", "lane"):
        hub = acquire_hub()
        result: list[object] = []
        done = threading.Event()

        def retire(hub=hub, result=result, done=done) -> None:
            result.append(hub.release())
            result.append(hub.join(Deadline(LIMIT)))
            done.set()

        if where == "io":
            hub.io.call(retire)
        else:
            Lane().post(retire, hub.workers)
        assert done.wait(LIMIT)
        assert result == [True, []]
        assert hub.join(Deadline(LIMIT)) == []


def test_a_release_too_many_retires_nothing():
    """Releasing more often than acquiring does not retire the hub that others got meanwhile."""
    first = acquire_hub()
    assert first.release()
    second = acquire_hub()
    assert not first.release()
    assert acquire_hub() is second
    assert not second.release()
    assert second.release()
    for hub in (first, second):
        hub.join(Deadline(LIMIT))


def test_acquire_and_release_from_many_threads():
    """Under contention every user has a hub that works while he holds it, and in the end nothing is left."""
    start = threading.Barrier(8)

    def use(seed: int) -> None:
        rng = random.Random(seed)
        start.wait(LIMIT)
        for _ in range(40):
            hub = acquire_hub()
            done = threading.Event()
            if rng.random() < 0.5:
                hub.io.call(done.set)
            else:
                Lane().post(done.set, hub.workers)
            assert done.wait(LIMIT)
            if hub.release():
                assert hub.join(Deadline(LIMIT)) == []

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6 * LIMIT)
        assert not thread.is_alive()
    assert module._slot._current is None
    assert package_threads() == set()


def test_a_hub_that_cannot_be_made_is_not_counted(monkeypatch):
    """When the io thread cannot start, `acquire_hub()` raises, and the next one tries anew."""

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(module, "IOThread", refuse)
        with pytest.raises(RuntimeError):
            acquire_hub()
    hub = acquire_hub()
    assert hub.users == 1
    assert hub.release()
    assert hub.join(Deadline(LIMIT)) == []


def test_a_hub_is_made_while_its_lock_is_free(monkeypatch):
    """Invariant "locks are leaves": a thread is started outside of the lock, also when two users make a hub at once.

    They get the same one then, and the threads of the other end.
    """
    both = threading.Barrier(2)
    free = []

    class Slow(module.Hub):
        def __init__(self) -> None:
            both.wait(LIMIT)
            lock = module._slot._lock
            with running(lambda: lock.acquire(blocking=False) and (lock.release(), True)[1]) as asked:
                free.append(asked.get())
            super().__init__()
            both.wait(LIMIT)

    monkeypatch.setattr(module, "Hub", Slow)
    with running(acquire_hub) as one, running(acquire_hub) as other:
        hubs = {one.get(), other.get()}
    assert free == [True, True]
    (hub,) = hubs
    assert hub.users == 2
    assert [t for t in package_threads() if t.name.startswith("rtvi-io-")] == [hub.io.thread]
    assert [hub.release(), hub.release()] == [False, True]
    assert hub.join(Deadline(LIMIT)) == []


def test_a_forked_child_gets_a_hub_of_its_own():
    """In a child, even if the lock was held at the fork, the next hub is a new one with threads of its own."""
    hub = acquire_hub()

    def child() -> object:
        new = acquire_hub()
        done = threading.Event()
        new.io.call(done.set)
        answered = done.wait(LIMIT)
        retired = new.release()
        return new is not hub, answered, retired, new.join(Deadline(LIMIT))

    with module._slot._lock:
        assert in_child(child) == (True, True, True, [])
    done = threading.Event()
    hub.io.call(done.set)
    assert done.wait(LIMIT)
    assert hub.release()
    assert hub.join(Deadline(LIMIT)) == []


def test_a_child_cannot_retire_the_parents_hub():
    """Releasing an inherited hub in a child touches none of its locks, which may be held for ever, nor its threads."""
    hub = acquire_hub()

    def child() -> object:
        return hub.release(), hub.join(Deadline(LIMIT))

    with hub.workers._lock, hub.pacer._lock:
        assert in_child(child) == (False, [])
    with running(lambda: hub.release()) as release:
        assert release.get() is True
    assert hub.join(Deadline(LIMIT)) == []
