"""The runtime: shared threads, counted by their users."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from rtvi_sync.concurrency import runtime as module
from rtvi_sync.concurrency.deadline import Deadline, join_thread
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.runtime import Runtime, acquire_runtime
from rtvi_sync.concurrency.serial_queue import SerialQueue
from tests.support import limits
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.thread_parts import lock_of, put, selector_of, shared_by, slot_of, wake
from tests.support.threads import package_threads, reads, running
from tests.support.waiting import until

from .queues import Blocker

pytestmark = pytest.mark.inside


def answers(runtime: Runtime) -> bool:
    """Return whether its I/O thread is at work."""
    done = threading.Event()
    runtime.io.call(done.set)
    return done.wait(GUARD)


def test_users_share_one_runtime():
    """All users of the process get the same runtime, and its I/O thread is one."""
    runtimes = [acquire_runtime() for _ in range(5)]
    assert len(set(map(id, runtimes))) == 1
    assert len([t for t in package_threads() if reads(t)]) == 1
    for runtime in runtimes:
        runtime.release()


def test_the_next_user_gets_the_same_runtime():
    """An unused runtime stays for a while: the next user gets its running threads."""
    first = acquire_runtime()
    first.release()
    second = acquire_runtime()
    assert second is first
    assert answers(second)
    second.release()


def test_a_runtime_that_is_unused_for_a_while_is_retired_for_good(monkeypatch):
    """The threads of a runtime that stays unused end by themselves, and the next user gets a new runtime."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    runtime = acquire_runtime()
    runtime.release()
    assert acquire_runtime() is runtime
    looks = threading.Event()
    runtime.io.call(lambda: runtime.io.call_later(0.1, looks.set))
    assert looks.wait(GUARD)
    assert answers(runtime)
    runtime.release()
    runtime.io.thread.join(GUARD)
    assert not runtime.io.thread.is_alive()
    new = acquire_runtime()
    assert new is not runtime
    assert answers(new)
    new.release()


def test_the_threads_of_an_unused_runtime_are_stopped():
    """I/O thread, workers and timer thread have ended when `stop_idle_threads()` returns, if the runtime is unused."""
    runtime = acquire_runtime()
    queue, ran, stepped = SerialQueue(), threading.Event(), threading.Event()
    queue.post(ran.set, runtime.workers)
    runtime.timer.add(lambda now: stepped.set(), runtime.timer.now())
    assert ran.wait(GUARD)
    assert stepped.wait(GUARD)
    assert sorted(t.name.split("-")[1] for t in package_threads()) == ["timer", "worker", "worker"]
    runtime.release()
    stop_idle_threads()
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]


class Work:
    """Work for `submit_soon()`."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work

    def drain(self) -> None:
        self._work()


def test_a_worker_that_is_called_at_the_end_is_waited_for(monkeypatch):
    """The I/O thread calls a worker as it ends, for the work of the next round."""
    limits.patch(monkeypatch, worker_round=GUARD)
    joined: list[threading.Thread] = []
    began, stopping, over, waited_for = [threading.Event() for _ in range(4)]

    def join(thread: threading.Thread, deadline: Deadline) -> bool:
        joined.append(thread)
        stopping.set()
        return join_thread(thread, deadline)

    def wait_to_be_joined() -> None:
        until(lambda: threading.current_thread() in joined or over.is_set())
        if not over.is_set():
            waited_for.set()

    monkeypatch.setattr(module, "join_thread", join)
    runtime, blocker = acquire_runtime(), Blocker()
    runtime.workers.submit_soon(Work(began.set))
    assert began.wait(GUARD)
    runtime.workers.submit_soon(Work(wait_to_be_joined))
    runtime.io.call(blocker)
    assert blocker.begun.wait(GUARD)
    runtime.release()
    with running(stop_idle_threads):
        assert stopping.wait(GUARD)
        blocker.let_go.set()
    over.set()
    assert waited_for.is_set()


def test_a_thread_that_is_late_is_not_waited_for(monkeypatch):
    """A handler that hangs holds `stop_idle_threads()` up to its limit only."""
    limits.patch(monkeypatch, idle_end=0.05)
    runtime = acquire_runtime()
    queue, begun, let_go = SerialQueue(), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        let_go.wait(GUARD)

    queue.post(hang, runtime.workers)
    assert begun.wait(GUARD)
    runtime.release()
    stop_idle_threads()
    (late,) = (t for t in threading.enumerate() if t.name.startswith("rtvi-worker-"))
    let_go.set()
    late.join(GUARD)
    assert not late.is_alive()


def test_a_thread_of_the_runtime_does_not_wait_for_itself():
    """A queue worker or the I/O thread may release the runtime and send it home: it waits for the others only."""
    for where in ("io", "queue"):
        runtime = acquire_runtime()
        done = threading.Event()

        def retire(runtime=runtime, done=done) -> None:
            runtime.release()
            stop_idle_threads()
            done.set()

        if where == "io":
            runtime.io.call(retire)
        else:
            SerialQueue().post(retire, runtime.workers)
        assert done.wait(GUARD)
        runtime.io.thread.join(GUARD)
        assert not runtime.io.thread.is_alive()


def test_a_surplus_release_takes_the_runtime_from_no_user():
    """Releasing an unused runtime does not count."""
    runtime = acquire_runtime()
    runtime.release()
    runtime.release()
    assert acquire_runtime() is runtime
    stop_idle_threads()
    assert answers(runtime)
    runtime.release()


def test_acquire_and_release_from_many_threads(monkeypatch):
    """Under contention every user has a runtime that works while it holds it, however soon unused ones are retired, and
    in the end nothing is left."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.0)
    start = threading.Barrier(8)

    def use(seed: int) -> None:
        rng = random.Random(seed)
        start.wait(GUARD)
        for _ in range(40):
            runtime = acquire_runtime()
            done = threading.Event()
            if rng.random() < 0.5:
                runtime.io.call(done.set)
            else:
                SerialQueue().post(done.set, runtime.workers)
            assert done.wait(GUARD)
            runtime.release()
            if rng.random() < 0.1:
                stop_idle_threads()

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6 * GUARD)
        assert not thread.is_alive()
    for thread in package_threads():  # some are on their way out
        thread.join(GUARD)
    until(lambda: not package_threads())  # the last ones may be on their way out
    assert shared_by(module) is None


def test_a_runtime_that_cannot_be_made_is_not_counted(monkeypatch):
    """When the I/O thread cannot start, `acquire_runtime()` raises, and the next one tries again."""

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(module, "IOThread", refuse)
        with pytest.raises(RuntimeError):
            acquire_runtime()
    runtime = acquire_runtime()
    assert runtime.users == 1
    runtime.release()


def test_a_runtime_is_made_while_its_lock_is_free(monkeypatch):
    """Invariant "locks are leaves": a thread is started outside of the lock, also when two users make a runtime at
    once.

    They get the same one then, and the threads of the other end.
    """
    both = threading.Barrier(2)
    free = []

    def is_free() -> bool:
        lock = lock_of(slot_of(module))
        if not lock.acquire(blocking=False):
            return False
        lock.release()
        return True

    class Slow(module.Runtime):
        def __init__(self) -> None:
            both.wait(GUARD)
            with running(is_free) as asked:
                free.append(asked.get())
            super().__init__()
            both.wait(GUARD)

    stop_idle_threads()
    monkeypatch.setattr(module, "Runtime", Slow)
    with running(acquire_runtime) as one, running(acquire_runtime) as other:
        runtimes = {one.get(), other.get()}
    assert free == [True, True]
    (runtime,) = runtimes
    assert runtime.users == 2
    assert [t for t in package_threads() if reads(t)] == [runtime.io.thread]
    runtime.release()
    runtime.release()


def _fail_with(error: BaseException) -> Callable[[], NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise error

    return fail


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", ["a fault of the thread", "a closed selector"])
def test_a_runtime_whose_io_thread_failed_is_replaced(monkeypatch, fault):
    """The next user gets another one, whatever has ended the thread."""
    runtime = acquire_runtime()
    assert answers(runtime)
    io, failed = runtime.io, runtime.io.thread
    with monkeypatch.context() as patch:
        if fault == "a closed selector":
            io.call(lambda: os.close(selector_of(io).fileno()))
        else:
            put(patch, io, "timers", _fail_with(MemoryError()))
            wake(io)
        until(lambda: io.ended)
    new = acquire_runtime()
    assert new is not runtime
    assert answers(new)
    runtime.release()
    new.release()
    until(lambda: not failed.is_alive())


def test_a_forked_child_gets_a_runtime_of_its_own():
    """In a child, even if the lock was held at the fork, the next runtime is a new one with threads of its own."""
    runtime = acquire_runtime()

    def child() -> object:
        new = acquire_runtime()
        answered = answers(new)
        new.release()
        stop_idle_threads()
        return new is not runtime, answered, new.io.thread.is_alive()

    with lock_of(slot_of(module)):
        assert in_child(child) == (True, True, False)
    assert answers(runtime)
    runtime.release()


def test_a_child_cannot_retire_the_parents_runtime():
    """Releasing an inherited runtime in a child does not use its locks, which may be held for ever, or its threads."""
    runtime = acquire_runtime()

    def child() -> object:
        runtime.release()
        stop_idle_threads()
        return runtime.users

    with lock_of(runtime.workers), lock_of(runtime.timer):
        assert in_child(child) == 1
    assert answers(runtime)
    runtime.release()


def test_a_fork_finds_no_thread_of_an_unused_runtime():
    """The threads of an unused runtime end before the process forks, so that the fork loses none."""
    runtime = acquire_runtime()
    runtime.release()
    assert in_child(lambda: True)
    assert not [t for t in threading.enumerate() if t.name.startswith("rtvi-")]
