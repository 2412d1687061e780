"""How queue workers take the I/O thread's place while it runs the items that it has read."""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync.concurrency import worker_pool as module
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.serial_queue import SerialQueue
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support import limits
from tests.support.forking import in_child
from tests.support.io_threads import on
from tests.support.slowness import GUARD
from tests.support.thread_parts import idle_workers, inner, lock_of, put, stop
from tests.support.waiting import until

from .queues import Blocker, drained, end

pytestmark = pytest.mark.inside


class Pool:
    """An I/O thread, and the workers that swap roles with it."""

    def __init__(self) -> None:
        self.io = IOThread()
        self.workers = WorkerPool(self.io)

    def post(self, *items: tuple[SerialQueue, Callable[[], object]]) -> None:
        """Queue functions in their queues, on the I/O thread and all before it waits again."""

        def post() -> None:
            for queue, item in items:
                queue.post(item, self.workers)

        self.io.call(post)

    def rest(self) -> None:
        """Wait until one worker rests."""
        drained(SerialQueue(), self.workers)
        until(lambda: idle_workers(self.workers))

    def close(self) -> None:
        self.workers.close()
        self.io.close()
        assert self.io.thread in self.workers.threads() or not self.io.thread.is_alive()
        end(self.workers)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Make a pool whose threads must all end after the test. The I/O thread swaps roles however short it was idle."""
    limits.patch(monkeypatch, worker_min_idle=0.0)
    pool = Pool()
    yield pool
    pool.close()


def thread_of(pool: Pool, queue: SerialQueue) -> threading.Thread:
    """Return the thread that runs an item which is queued on the I/O thread."""
    ran_on: list[threading.Thread] = []
    pool.post((queue, lambda: ran_on.append(threading.current_thread())))
    until(lambda: ran_on)
    return ran_on[0]


def test_the_io_thread_runs_what_became_ready_on_it(pool):
    """An idle worker takes its place, and has it until the next time."""
    pool.rest()
    first, second = pool.io.thread, next(iter(idle_workers(pool.workers))).thread
    queue = SerialQueue()
    for before, after in ((first, second), (second, first), (first, second)):
        assert on(pool.io, threading.current_thread) is pool.io.thread is before
        assert thread_of(pool, queue) is before
        assert on(pool.io, threading.current_thread) is pool.io.thread is after
        until(lambda: idle_workers(pool.workers))


def test_a_thread_keeps_its_name(pool):
    """Threads that swap roles are named rtvi-worker-<n>, whatever they do."""
    pool.rest()
    names = {pool.io.thread.name, next(iter(idle_workers(pool.workers))).thread.name}
    assert all(name.startswith("rtvi-worker-") for name in names)
    for _ in range(3):
        ran_on = thread_of(pool, SerialQueue())
        assert {ran_on.name, on(pool.io, lambda: threading.current_thread().name)} == names
        until(lambda: idle_workers(pool.workers))


def test_no_worker_is_idle(pool):
    """The I/O thread goes on, and a new worker runs the item."""
    reader = pool.io.thread
    assert thread_of(pool, SerialQueue()) is not reader
    assert pool.io.thread is reader


def test_an_io_thread_that_has_not_rested(pool, monkeypatch):
    """An I/O thread that has not rested goes on reading while an idle worker runs the item; a rested one runs it."""
    pool.rest()
    reader = pool.io.thread
    limits.patch(monkeypatch, worker_min_idle=GUARD)
    assert thread_of(pool, SerialQueue()) is not reader
    assert pool.io.thread is reader
    until(lambda: idle_workers(pool.workers))
    limits.patch(monkeypatch, worker_min_idle=1e-6)
    assert thread_of(pool, SerialQueue()) is reader


def test_it_knows_how_long_it_rested(pool):
    """The idle time of the I/O thread lasts from its last look to the next thing to do."""
    begun = time.monotonic()
    on(pool.io, int)
    threading.Event().wait(0.02)
    rested = on(pool.io, lambda: pool.io.idle_time)
    assert 0.01 < rested <= time.monotonic() - begun


def test_the_only_idle_worker_leaves_in_the_very_moment(pool):
    """If the only idle worker leaves in that very moment, a new worker runs the item."""
    pool.rest()
    reader, ran_on = pool.io.thread, []

    def post() -> None:
        SerialQueue().post(lambda: ran_on.append(threading.current_thread()), pool.workers)
        (worker,) = idle_workers(pool.workers)
        with lock_of(pool.workers):
            idle_workers(pool.workers).clear()
        leaving.append(worker)

    leaving: list[Any] = []
    pool.io.call(post)
    until(lambda: ran_on)
    assert pool.io.thread is reader is not ran_on[0]
    leaving[0].wake()  # it rests again


def test_a_worker_that_was_awake_was_faster(pool):
    """No work is left: the I/O thread stays in its place, and the next queue is still run."""
    pool.rest()
    queue, reader = SerialQueue(), pool.io.thread
    promote = pool.workers.promote

    def late() -> bool:
        with lock_of(pool.workers):
            inner(pool.workers, "ready").clear()
        queue.drain()
        pool.workers.promote = promote
        return promote()

    ran_on: list[threading.Thread] = []

    def post() -> None:
        queue.post(lambda: ran_on.append(threading.current_thread()), pool.workers)
        pool.workers.promote = late

    pool.io.call(post)
    until(lambda: ran_on)
    assert on(pool.io, threading.current_thread) is reader
    assert thread_of(pool, queue) is reader
    assert pool.io.thread is not reader


def test_an_item_that_blocks_holds_up_its_queue_only(pool):
    """The new I/O thread serves commands and timers, and queues that become ready during the item are run."""
    pool.rest()
    blocker, slow, other = Blocker(), SerialQueue(), SerialQueue()
    seen: list[int] = []
    reader = pool.io.thread

    def is_last(n: int) -> bool:
        return seen[-1] == n

    pool.post((slow, blocker), (other, lambda: seen.append(0)))
    assert blocker.begun.wait(GUARD)
    assert pool.io.thread is not reader
    pool.post((slow, lambda: seen.append(-1)))
    until(lambda: seen == [0])
    late = threading.Event()
    on(pool.io, lambda: pool.io.call_later(0.0, late.set))
    assert late.wait(GUARD)
    for n in range(1, 10):
        pool.post((other, lambda n=n: seen.append(n)))
        until(functools.partial(is_last, n))
    assert seen == list(range(10))
    blocker.let_go.set()
    until(lambda: seen[-1] == -1)


def test_a_timer_makes_a_queue_ready(pool):
    """The I/O thread runs the item, though no event would wake it."""
    pool.rest()
    reader, ran_on = pool.io.thread, []
    queue = SerialQueue()

    def post() -> None:
        queue.post(lambda: ran_on.append(threading.current_thread()), pool.workers)

    on(pool.io, lambda: pool.io.call_later(0.01, post))
    until(lambda: ran_on)
    assert ran_on == [reader]


def test_an_item_waits_for_the_io_thread(pool):
    """An item may wait for the I/O thread, though it runs on the thread that was the I/O thread before."""
    pool.rest()
    answers: list[object] = []
    pool.post((SerialQueue(), lambda: answers.append(on(pool.io, lambda: "answer"))))
    until(lambda: answers)
    assert answers == ["answer"]


def test_items_keep_their_order(pool):
    """Items posted on the I/O thread and on others run in their order, one at a time, across many swaps of roles."""
    queue, seen, busy = SerialQueue(), [], threading.Lock()

    def item(n: int) -> None:
        assert busy.acquire(blocking=False)
        seen.append(n)
        busy.release()

    for n in range(2000):
        if n % 3:
            pool.post((queue, lambda n=n: item(n)))
        else:
            on(pool.io, int)
            queue.post(functools.partial(item, n), pool.workers)
    on(pool.io, int)
    drained(queue, pool.workers)
    assert seen == list(range(2000))


def test_much_to_read(pool):
    """A queue that gets more before the I/O thread would wait does not wait for that: a worker arrives at once."""
    pool.rest()
    queue, ran_on = SerialQueue(), []

    def read_much() -> None:
        done = threading.Event()
        for _ in range(3):
            queue.post(lambda: ran_on.append(threading.current_thread()), pool.workers)
        queue.post(done.set, pool.workers)
        assert done.wait(GUARD)

    reader = pool.io.thread
    on(pool.io, read_much)
    assert len(ran_on) == 3
    assert reader not in ran_on
    assert on(pool.io, threading.current_thread) is reader
    until(lambda: idle_workers(pool.workers))
    assert thread_of(pool, queue) is reader


def test_it_ends_while_an_item_runs(pool):
    """`close()` ends the thread that reads now; the one that runs an item leaves when that is done."""
    pool.rest()
    blocker = Blocker()
    reader = pool.io.thread
    pool.post((SerialQueue(), blocker))
    assert blocker.begun.wait(GUARD)
    pool.workers.close()
    pool.io.close()
    until(lambda: not pool.io.thread.is_alive())
    assert pool.workers.threads() == [reader]
    blocker.let_go.set()
    reader.join(GUARD)
    assert not reader.is_alive()


def test_what_is_queued_by_the_last_command(pool):
    """An item that the last command queues is run, though the I/O thread ends without waiting again."""
    pool.rest()
    seen: list[int] = []

    def last() -> None:
        stop(pool.io)
        SerialQueue().post(lambda: seen.append(1), pool.workers)

    pool.io.call(last)
    until(lambda: seen)
    until(lambda: not pool.io.thread.is_alive())


def test_what_is_queued_at_the_very_end(pool):
    """A connection that is left when the I/O thread ends may have something to say: a worker runs it."""
    pool.rest()
    said = threading.Event()

    class Left:
        def __init__(self) -> None:
            self.ours, self.peer = socket.socketpair()

        def fileno(self) -> int:
            return self.ours.fileno()

        def on_readable(self) -> None:
            raise AssertionError

        def on_failure(self, error: BaseException) -> None:
            SerialQueue().post(said.set, pool.workers)

    left = Left()
    with left.ours, left.peer:
        on(pool.io, lambda: pool.io.register(left))
        pool.io.close()
        assert said.wait(GUARD)


def test_after_a_rest(pool, monkeypatch):
    """A thread that was the I/O thread leaves as any idle worker does; the next queue gets a new one."""
    pool.rest()
    reader = pool.io.thread
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    assert thread_of(pool, SerialQueue()) is reader
    reader.join(GUARD)
    assert not reader.is_alive()
    assert pool.workers.threads() == [pool.io.thread]
    assert thread_of(pool, SerialQueue()) is not pool.io.thread


def test_a_fork_by_an_item(pool):
    """In the child the thread that was the I/O thread reads nothing, and takes no further queue."""
    pool.rest()
    reader = pool.io.thread
    answers: list[object] = []

    def fork() -> None:
        # The child runs the code after the item too, and must end there.
        answers.append(in_child(lambda: (pool.io.is_current, threading.current_thread() is reader)))

    pool.post((SerialQueue(), fork))
    until(lambda: answers)
    assert answers == [(False, True)]
    assert on(pool.io, threading.current_thread) is pool.io.thread is not reader


def test_many_turns_under_load(pool):
    """Commands of several threads, items of several queues: each is run once, and the pool stays small."""
    counts = [0] * 8
    own_queues = [SerialQueue() for _ in counts]

    def count(index: int) -> None:
        counts[index] += 1

    def give(index: int) -> None:
        for n in range(300):
            pool.post((own_queues[index], lambda: count(index)))
            if n % 7 == index:
                on(pool.io, int)

    threads = [threading.Thread(target=give, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: counts == [300] * len(counts))
    assert len(pool.workers.threads()) <= 2 + len(counts)


class Noting:
    """Work that notes when it is done."""

    def __init__(self) -> None:
        self.done_at: list[float] = []

    def drain(self) -> None:
        self.done_at.append(time.monotonic())


def test_work_of_a_round_is_done_together(pool, monkeypatch):
    """The first is done at once, those that follow in the next round, and each once; then the next is first again."""
    limits.patch(monkeypatch, worker_round=0.2)
    first, *others = [Noting() for _ in range(5)]
    pool.workers.submit_soon(first)
    until(lambda: first.done_at)
    for _ in range(2):
        for work in others:
            pool.workers.submit_soon(work)
    until(lambda: all(work.done_at for work in others))
    assert all(work.done_at[0] >= first.done_at[0] + 0.1 for work in others)
    limits.patch(monkeypatch, worker_round=0.0)
    pool.workers.submit_soon(first)
    until(lambda: len(first.done_at) == 2)
    assert [len(work.done_at) for work in others] == [1] * 4


def test_work_of_a_round_that_blocks(pool, monkeypatch):
    """Work that blocks holds up one worker and nothing else: another one does the rest, without a further event."""

    class Blocking(Noting):
        def drain(self) -> None:
            blocker()
            super().drain()

    limits.patch(monkeypatch, worker_round=0.01)
    first, blocking, blocker, others = Noting(), Blocking(), Blocker(), [Noting() for _ in range(3)]

    def submit() -> None:
        for work in (first, blocking, *others):
            pool.workers.submit_soon(work)

    on(pool.io, submit)
    until(lambda: all(work.done_at for work in (first, *others)))
    assert blocker.begun.is_set()
    assert not blocking.done_at
    blocker.let_go.set()
    until(lambda: blocking.done_at)
    until(lambda: not inner(pool.workers, "planned"))


def test_one_worker_does_the_work_of_a_round(pool, monkeypatch):
    """No second worker is woken for work that does not block."""
    limits.patch(monkeypatch, worker_round=0.05)
    ran_on: list[threading.Thread] = []

    class Running:
        def drain(self) -> None:
            ran_on.append(threading.current_thread())

    def submit() -> None:
        for _ in range(20):
            pool.workers.submit_soon(Running())

    on(pool.io, submit)
    until(lambda: len(ran_on) == 20)
    assert len(set(ran_on[1:])) == 1
    assert len(pool.workers.threads()) <= 3


def test_the_io_thread_ends_before_a_round_is_planned(pool, monkeypatch):
    """The work is still done, though no round starts any more."""
    work, began = Noting(), time.monotonic()
    inner(pool.workers, "plan a round")(pool.io)  # the task of rounds exists

    def end_meanwhile() -> float:
        monkeypatch.undo()
        pool.io.close()
        pool.io.thread.join(GUARD)
        return began

    put(pytest.MonkeyPatch(), pool.workers, "start of a round", began)  # not undone with the clock
    monkeypatch.setattr(module, "monotonic", end_meanwhile)
    pool.workers.submit_soon(work)
    until(lambda: work.done_at)


def test_a_round_that_is_not_planned_because_of_ctrl_c(pool, monkeypatch):
    """The work is still done, and so is later work."""
    limits.patch(monkeypatch, worker_round=GUARD)
    put(monkeypatch, pool.workers, "start of a round", time.monotonic())

    def interrupted(_: IOThread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        put(patch, pool.workers, "plan a round", interrupted)
        work = Noting()
        with pytest.raises(KeyboardInterrupt):
            pool.workers.submit_soon(work)
    until(lambda: work.done_at)
    assert not inner(pool.workers, "planned")


def test_a_round_that_waits_when_the_io_thread_ends(monkeypatch):
    """Work that waits when the I/O thread ends is still done, and later work is done at once."""
    pool = Pool()
    limits.patch(monkeypatch, worker_round=GUARD)
    first, second, third = Noting(), Noting(), Noting()
    for work in (first, second):
        pool.workers.submit_soon(work)
    until(lambda: first.done_at)
    assert second.done_at == []
    pool.close()
    until(lambda: second.done_at)
    pool.workers.submit_soon(third)
    until(lambda: third.done_at)
