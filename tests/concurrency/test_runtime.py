"""The runtime: shared threads, counted by their users."""

from __future__ import annotations

import random
import threading

import pytest

from rtvi_sync.concurrency import lifecycle
from rtvi_sync.concurrency import runtime as module
from rtvi_sync.concurrency.lifecycle import send_idle_home
from rtvi_sync.concurrency.runtime import Runtime, acquire_runtime
from rtvi_sync.concurrency.serial_queue import SerialQueue
from tests.support.forking import in_child
from tests.support.loopback import LIMIT
from tests.support.threads import package_threads, running
from tests.support.waiting import until


def answers(runtime: Runtime) -> bool:
    """Whether its io thread is at work."""
    done = threading.Event()
    runtime.io.call(done.set)
    return done.wait(LIMIT)


def test_users_share_one_hub():
    """All users of the process get the same runtime, and its io thread is one."""
    runtimes = [acquire_runtime() for _ in range(5)]
    assert len(set(map(id, runtimes))) == 1
    assert len([t for t in package_threads() if t.name.startswith("rtvi-io-")]) == 1
    for runtime in runtimes:
        runtime.release()


def test_the_next_user_gets_the_same_hub():
    """A runtime that nobody uses stays for a while: the next one finds its threads at work."""
    first = acquire_runtime()
    first.release()
    second = acquire_runtime()
    assert second is first
    assert answers(second)
    second.release()


def test_a_hub_that_nobody_uses_for_a_while_is_retired_for_good(monkeypatch):
    """Its threads end by themselves; the next user gets a new one, even while a thread of the old one is still there.

    Whoever uses it in between has it stay.
    """
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    runtime = acquire_runtime()
    runtime.release()
    assert acquire_runtime() is runtime
    looks = threading.Event()
    runtime.io.call(lambda: runtime.io.call_later(0.1, looks.set))
    assert looks.wait(LIMIT)
    assert answers(runtime)
    runtime.release()
    runtime.io.thread.join(LIMIT)
    assert not runtime.io.thread.is_alive()
    new = acquire_runtime()
    assert new is not runtime
    assert answers(new)
    new.release()


def test_all_threads_go_home_when_they_are_sent():
    """io thread, queue workers and timer thread have ended when `send_idle_home()` returns, unless somebody uses the
    runtime.
    """
    runtime = acquire_runtime()
    queue, ran, paced = SerialQueue(), threading.Event(), threading.Event()
    queue.post(ran.set, runtime.workers)
    runtime.timer.add(lambda now: paced.set(), runtime.timer.now())
    assert ran.wait(LIMIT)
    assert paced.wait(LIMIT)
    assert {t.name.split("-")[1] for t in package_threads()} == {"io", "worker", "timer"}
    runtime.release()
    send_idle_home()
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]


def test_a_thread_that_is_late_is_not_waited_for(monkeypatch):
    """A handler that hangs holds `send_idle_home()` up to its limit only."""
    monkeypatch.setattr(lifecycle, "_IDLE_LIMIT", 0.05)
    runtime = acquire_runtime()
    queue, begun, let_go = SerialQueue(), threading.Event(), threading.Event()
    queue.post(lambda: (begun.set(), let_go.wait(LIMIT)), runtime.workers)
    assert begun.wait(LIMIT)
    runtime.release()
    send_idle_home()
    (late,) = (t for t in threading.enumerate() if t.name.startswith("rtvi-worker-"))
    let_go.set()
    late.join(LIMIT)
    assert not late.is_alive()


def test_a_thread_of_the_hub_does_not_wait_for_itself():
    """A queue worker or the io thread may release the runtime and send it home: it waits for the others only."""
    for where in ("io", "queue"):
        runtime = acquire_runtime()
        done = threading.Event()

        def retire(runtime=runtime, done=done) -> None:
            runtime.release()
            send_idle_home()
            done.set()

        if where == "io":
            runtime.io.call(retire)
        else:
            SerialQueue().post(retire, runtime.workers)
        assert done.wait(LIMIT)
        runtime.io.thread.join(LIMIT)
        assert not runtime.io.thread.is_alive()


def test_a_release_too_many_takes_the_hub_from_nobody():
    """Releasing a runtime that nobody uses does not count."""
    runtime = acquire_runtime()
    runtime.release()
    runtime.release()
    assert acquire_runtime() is runtime
    send_idle_home()
    assert answers(runtime)
    runtime.release()


def test_acquire_and_release_from_many_threads(monkeypatch):
    """Under contention every user has a runtime that works while he holds it, however soon unused ones are retired, and
    in the end nothing is left."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.0)
    start = threading.Barrier(8)

    def use(seed: int) -> None:
        rng = random.Random(seed)
        start.wait(LIMIT)
        for _ in range(40):
            runtime = acquire_runtime()
            done = threading.Event()
            if rng.random() < 0.5:
                runtime.io.call(done.set)
            else:
                SerialQueue().post(done.set, runtime.workers)
            assert done.wait(LIMIT)
            runtime.release()
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
    """When the io thread cannot start, `acquire_runtime()` raises, and the next one tries anew."""

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(module, "IOThread", refuse)
        with pytest.raises(RuntimeError):
            acquire_runtime()
    runtime = acquire_runtime()
    assert runtime.users == 1
    runtime.release()


def test_a_hub_is_made_while_its_lock_is_free(monkeypatch):
    """Invariant "locks are leaves": a thread is started outside of the lock, also when two users make a runtime at
    once.

    They get the same one then, and the threads of the other end.
    """
    both = threading.Barrier(2)
    free = []

    class Slow(module.Runtime):
        def __init__(self) -> None:
            both.wait(LIMIT)
            lock = module._slot._lock
            with running(lambda: lock.acquire(blocking=False) and (lock.release(), True)[1]) as asked:
                free.append(asked.get())
            super().__init__()
            both.wait(LIMIT)

    send_idle_home()
    monkeypatch.setattr(module, "Runtime", Slow)
    with running(acquire_runtime) as one, running(acquire_runtime) as other:
        runtimes = {one.get(), other.get()}
    assert free == [True, True]
    (runtime,) = runtimes
    assert runtime.users == 2
    assert [t for t in package_threads() if t.name.startswith("rtvi-io-")] == [runtime.io.thread]
    runtime.release()
    runtime.release()


def test_a_forked_child_gets_a_hub_of_its_own():
    """In a child, even if the lock was held at the fork, the next runtime is a new one with threads of its own."""
    runtime = acquire_runtime()

    def child() -> object:
        new = acquire_runtime()
        answered = answers(new)
        new.release()
        send_idle_home()
        return new is not runtime, answered, new.io.thread.is_alive()

    with module._slot._lock:
        assert in_child(child) == (True, True, False)
    assert answers(runtime)
    runtime.release()


def test_a_child_cannot_retire_the_parents_hub():
    """Releasing an inherited runtime in a child touches none of its locks, which may be held for ever, nor its threads."""
    runtime = acquire_runtime()

    def child() -> object:
        runtime.release()
        send_idle_home()
        return runtime.users

    with runtime.workers._lock, runtime.timer._lock:
        assert in_child(child) == 1
    assert answers(runtime)
    runtime.release()


def test_a_fork_finds_no_thread_of_a_hub_that_nobody_uses():
    """They leave before the process forks: a process in which nothing goes on has no thread that a fork would lose."""
    runtime = acquire_runtime()
    runtime.release()
    assert in_child(lambda: True)
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]
