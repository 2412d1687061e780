"""The hub: shared threads, counted by their users."""

from __future__ import annotations

import random
import threading

import pytest

from rtvi_sync.concurrency import lifecycle
from rtvi_sync.concurrency import runtime as module
from rtvi_sync.concurrency.lifecycle import send_idle_home
from rtvi_sync.concurrency.runtime import Hub, acquire_hub
from rtvi_sync.concurrency.serial_queue import Lane

from ..client.helpers import until
from ..conftest import package_threads
from ..forking import in_child
from ..loopback import LIMIT, running


def answers(hub: Hub) -> bool:
    """Whether its io thread is at work."""
    done = threading.Event()
    hub.io.call(done.set)
    return done.wait(LIMIT)


def test_users_share_one_hub():
    """All users of the process get the same hub, and its io thread is one."""
    hubs = [acquire_hub() for _ in range(5)]
    assert len(set(map(id, hubs))) == 1
    assert len([t for t in package_threads() if t.name.startswith("rtvi-io-")]) == 1
    for hub in hubs:
        hub.release()


def test_the_next_user_gets_the_same_hub():
    """A hub that nobody uses stays for a while: the next one finds its threads at work."""
    first = acquire_hub()
    first.release()
    second = acquire_hub()
    assert second is first
    assert answers(second)
    second.release()


def test_a_hub_that_nobody_uses_for_a_while_is_retired_for_good(monkeypatch):
    """Its threads end by themselves; the next user gets a new one, even while a thread of the old one is still there.

    Whoever uses it in between has it stay.
    """
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    hub = acquire_hub()
    hub.release()
    assert acquire_hub() is hub
    looks = threading.Event()
    hub.io.call(lambda: hub.io.call_later(0.1, looks.set))
    assert looks.wait(LIMIT)
    assert answers(hub)
    hub.release()
    hub.io.thread.join(LIMIT)
    assert not hub.io.thread.is_alive()
    new = acquire_hub()
    assert new is not hub
    assert answers(new)
    new.release()


def test_all_threads_go_home_when_they_are_sent():
    """io thread, lane workers and pacer have ended when `send_idle_home()` returns, unless somebody uses the hub."""
    hub = acquire_hub()
    lane, ran, paced = Lane(), threading.Event(), threading.Event()
    lane.post(ran.set, hub.workers)
    hub.pacer.add(lambda now: paced.set(), hub.pacer.now())
    assert ran.wait(LIMIT)
    assert paced.wait(LIMIT)
    assert {t.name.split("-")[1] for t in package_threads()} == {"io", "lane", "pacer"}
    hub.release()
    send_idle_home()
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]


def test_a_thread_that_is_late_is_not_waited_for(monkeypatch):
    """A handler that hangs holds `send_idle_home()` up to its limit only."""
    monkeypatch.setattr(lifecycle, "_IDLE_LIMIT", 0.05)
    hub = acquire_hub()
    lane, begun, let_go = Lane(), threading.Event(), threading.Event()
    lane.post(lambda: (begun.set(), let_go.wait(LIMIT)), hub.workers)
    assert begun.wait(LIMIT)
    hub.release()
    send_idle_home()
    (late,) = (t for t in threading.enumerate() if t.name.startswith("rtvi-lane-"))
    let_go.set()
    late.join(LIMIT)
    assert not late.is_alive()


def test_a_thread_of_the_hub_does_not_wait_for_itself():
    """A lane worker or the io thread may release the hub and send it home: it waits for the others only."""
    for where in ("io", "lane"):
        hub = acquire_hub()
        done = threading.Event()

        def retire(hub=hub, done=done) -> None:
            hub.release()
            send_idle_home()
            done.set()

        if where == "io":
            hub.io.call(retire)
        else:
            Lane().post(retire, hub.workers)
        assert done.wait(LIMIT)
        hub.io.thread.join(LIMIT)
        assert not hub.io.thread.is_alive()


def test_a_release_too_many_takes_the_hub_from_nobody():
    """Releasing a hub that nobody uses does not count."""
    hub = acquire_hub()
    hub.release()
    hub.release()
    assert acquire_hub() is hub
    send_idle_home()
    assert answers(hub)
    hub.release()


def test_acquire_and_release_from_many_threads(monkeypatch):
    """Under contention every user has a hub that works while he holds it, however soon unused ones are retired, and in
    the end nothing is left."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.0)
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
            hub.release()
            if rng.random() < 0.1:
                send_idle_home()

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6 * LIMIT)
        assert not thread.is_alive()
    for thread in package_threads():  # some are on their way out
        thread.join(LIMIT)
    until(lambda: not package_threads())  # the last ones may be on their way out
    assert module._slot._current is None


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
    hub.release()


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

    send_idle_home()
    monkeypatch.setattr(module, "Hub", Slow)
    with running(acquire_hub) as one, running(acquire_hub) as other:
        hubs = {one.get(), other.get()}
    assert free == [True, True]
    (hub,) = hubs
    assert hub.users == 2
    assert [t for t in package_threads() if t.name.startswith("rtvi-io-")] == [hub.io.thread]
    hub.release()
    hub.release()


def test_a_forked_child_gets_a_hub_of_its_own():
    """In a child, even if the lock was held at the fork, the next hub is a new one with threads of its own."""
    hub = acquire_hub()

    def child() -> object:
        new = acquire_hub()
        answered = answers(new)
        new.release()
        send_idle_home()
        return new is not hub, answered, new.io.thread.is_alive()

    with module._slot._lock:
        assert in_child(child) == (True, True, False)
    assert answers(hub)
    hub.release()


def test_a_child_cannot_retire_the_parents_hub():
    """Releasing an inherited hub in a child touches none of its locks, which may be held for ever, nor its threads."""
    hub = acquire_hub()

    def child() -> object:
        hub.release()
        send_idle_home()
        return hub.users

    with hub.workers._lock, hub.pacer._lock:
        assert in_child(child) == 1
    assert answers(hub)
    hub.release()


def test_a_fork_finds_no_thread_of_a_hub_that_nobody_uses():
    """They leave before the process forks: a process in which nothing goes on has no thread that a fork would lose."""
    hub = acquire_hub()
    hub.release()
    assert in_child(lambda: True)
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]
