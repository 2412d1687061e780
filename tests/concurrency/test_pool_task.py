"""Short work on threads that stay for more of it."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections import deque
from typing import Any

import pytest

from rtvi_sync.concurrency import pool_task as module
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lifecycle import NoThreadError, stop_idle_threads
from rtvi_sync.concurrency.pool_task import PoolTask
from tests.support.forking import in_child
from tests.support.garbage import collect
from tests.support.slowness import GUARD
from tests.support.thread_parts import at_exit, task_pool
from tests.support.waiting import until

pytestmark = pytest.mark.inside


@pytest.fixture(autouse=True)
def no_idle_threads():
    """End the free threads of other tests."""
    stop_idle_threads()


def made(target, *args) -> PoolTask:
    """Return a task that is done."""
    task = PoolTask("call", target, *args)
    task.start()
    assert task.done.wait(Deadline(GUARD))
    return task


def test_the_next_task_finds_the_thread_of_the_last():
    """Tasks that follow each other run on the same thread, which is named for each."""
    seen = []
    for role in ("call", "close", "connect"):
        task = PoolTask(role, lambda: seen.append((threading.current_thread(), threading.current_thread().name)))
        task.start()
        assert task.done.wait(Deadline(GUARD))
    threads, names = zip(*seen, strict=True)
    assert len(set(threads)) == 1
    assert [name.rpartition("-")[0] for name in names] == ["rtvi-call", "rtvi-close", "rtvi-connect"]
    until(lambda: threads[0].name.startswith("rtvi-idle-"))


def test_tasks_at_once_have_threads_of_their_own():
    """A task that takes long delays no other."""
    let_go = threading.Event()
    slow = [PoolTask("call", let_go.wait, GUARD) for _ in range(3)]
    for task in slow:
        task.start()
    ran = threading.Event()
    made(ran.set)
    assert ran.is_set()
    let_go.set()
    for task in slow:
        assert task.done.wait(Deadline(GUARD))


def test_whose_task_it_is():
    """A task is current on its thread while it runs, and not when that thread has another one."""
    seen = []
    first = PoolTask("call", lambda: seen.append((first.is_current, first.threads == [threading.current_thread()])))
    first.start()
    assert first.done.wait(Deadline(GUARD))
    made(lambda: seen.append((first.is_current, bool(first.threads))))
    assert seen == [(True, True), (False, False)]


def test_an_error_ends_the_thread(monkeypatch):
    """An exception in a task is reported as for any thread; it is done, and the next one gets a thread that works."""
    told = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))

    def fail() -> None:
        raise ValueError

    made(fail)
    until(lambda: told)
    assert told == [ValueError]
    ran = threading.Event()
    made(ran.set)
    assert ran.is_set()


def test_a_task_begins_with_an_empty_context():
    """Context variables of one task are not the next one's, as if each had a thread of its own."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen = []
    variable.set(1)
    made(lambda: variable.set(2))
    made(lambda: seen.append(variable.get()))
    assert seen == [0]


def test_a_free_thread_holds_nothing():
    """Objects that a task refers to can be collected when it is done."""

    class Thing:
        def use(self, other: object) -> None:
            pass

    thing, other = Thing(), Thing()
    gone = weakref.ref(thing), weakref.ref(other)
    made(thing.use, other)
    del thing, other
    collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_free_thread_leaves_after_a_while(monkeypatch):
    """A thread without work ends by itself after a while."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    thread = []
    made(lambda: thread.append(threading.current_thread()))
    thread[0].join(GUARD)
    assert not thread[0].is_alive()
    assert not task_pool().idle_threads
    ran = threading.Event()
    made(ran.set)
    assert ran.is_set()


def test_a_finalizer_on_a_free_thread_does_not_wait_for_itself():
    """The garbage collector may run a finalizer on a thread that is about to be idle: its task goes to another one."""
    outcome: list[object] = []

    def finalizer(offer) -> None:
        task = PoolTask("call", outcome.append, "made")
        task.start()
        outcome.append(task.done.wait(Deadline(GUARD)))

    class Offers(deque[Any]):
        def appendleft(self, offer) -> None:
            super().appendleft(offer)
            if not outcome:
                outcome.append("began")
                finalizer(offer)

    before, task_pool().idle_threads = task_pool().idle_threads, Offers()
    try:
        made(lambda: None)
        stop_idle_threads()
    finally:
        task_pool().idle_threads = before
    assert outcome == ["began", "made", True]


def test_at_the_exit_of_the_interpreter(monkeypatch):
    """If no thread can be started, a free one is not used either: its work could start nothing."""

    def refuse(*_: object) -> None:
        raise NoThreadError("none to be had")

    made(lambda: None)
    monkeypatch.setattr(module, "start_thread", refuse)
    made(lambda: None)
    ended = threading.Thread()
    ended.start()
    ended.join()
    monkeypatch.setattr(threading, "main_thread", lambda: ended)
    with pytest.raises(NoThreadError):
        PoolTask("call", lambda: None).start()


def test_a_forked_child_has_threads_of_its_own():
    """A forked child has none of its parent's idle threads, and a task there gets one that exists."""

    def child() -> object:
        ran = threading.Event()
        made(ran.set)
        return ran.is_set()

    let_go = threading.Event()
    busy = PoolTask("call", let_go.wait, GUARD)
    busy.start()
    made(lambda: None)
    assert in_child(child)
    assert not task_pool().idle_threads  # those that were free have left before the fork
    let_go.set()
    assert busy.done.wait(Deadline(GUARD))


def test_a_task_that_forked(monkeypatch):
    """A task that forked does not offer its thread to others in the child, where the thread ends with it."""
    forks: list[str] = []
    monkeypatch.setattr(module, "fork_generation", lambda: len(forks))
    made(lambda: forks.append("now"))
    assert not task_pool().idle_threads


def test_from_many_threads(monkeypatch):
    """Under contention, and while idle threads end, every task runs once."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.0005)
    made_by = [0] * 8
    begin = threading.Barrier(8)

    def use(number: int) -> None:
        begin.wait(GUARD)
        for _ in range(200):
            count: list[int] = []
            made(count.append, 1)
            made_by[number] += len(count)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * GUARD)
        assert not thread.is_alive()
    assert made_by == [200] * 8
    stop_idle_threads()
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("rtvi-")])


def test_exit_stops_them():
    """When the sessions have ended at exit, the free threads leave."""
    made(lambda: None)
    at_exit()
    assert not task_pool().idle_threads
