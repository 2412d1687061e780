"""Serial queues: order, isolation, few workers, limits."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time

import pytest

from rtvi_sync.concurrency import worker_pool as module
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.lifecycle import NoThreadError, start_thread
from rtvi_sync.concurrency.serial_queue import QueueOverflow, SerialQueue
from rtvi_sync.concurrency.serial_work import Drainable
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.thread_parts import idle_workers, inner, lock_of, put
from tests.support.threads import in_sleepless_thread, package_threads, running, switch_interval
from tests.support.waiting import until

from .queues import Blocker, drained

pytestmark = pytest.mark.inside


def test_items_run_in_order_one_at_a_time(workers):
    """Posted items run in order and never on two threads at once."""
    queue = SerialQueue()
    seen: list[int] = []
    running_now = [0]

    def item(n: int) -> None:
        running_now[0] += 1
        assert running_now[0] == 1
        seen.append(n)
        running_now[0] -= 1

    for n in range(1000):
        queue.post(functools.partial(item, n), workers)
    drained(queue, workers)
    assert seen == list(range(1000))


def test_an_item_that_comes_while_its_worker_leaves(workers, monkeypatch):
    """An item posted after the worker's last look, while it still has the queue, is run and not left behind."""
    queue, late = SerialQueue(), threading.Event()
    release = inner(queue, "release")

    def post_and_release() -> None:
        put(monkeypatch, queue, "release", release)
        queue.post(late.set, workers)
        release()

    put(monkeypatch, queue, "release", post_and_release)
    queue.post(int, workers)
    assert late.wait(GUARD)


def test_a_blocked_queue_delays_no_other(workers):
    """While the item of one queue blocks, the others run on; its own later items wait."""
    blocked, other = SerialQueue(), SerialQueue()
    blocker, order = Blocker(), []
    blocked.post(blocker, workers)
    blocked.post(lambda: order.append("late"), workers)
    assert blocker.begun.wait(GUARD)
    for _ in range(5):
        drained(other, workers)
    assert order == []
    assert len(blocked) == 1
    blocker.let_go.set()
    drained(blocked, workers)
    assert order == ["late"]


def test_there_are_as_many_workers_as_items_run_at_once(workers):
    """500 queues that are served one after the other need one thread; 7 blocked ones need one each, and one more."""
    queues = [SerialQueue() for _ in range(500)]
    with switch_interval(GUARD):  # a worker that is interrupted on its way to the idle ones looks like one that blocks
        for queue in queues:
            drained(queue, workers)
    assert len(workers.threads()) <= 3
    blockers = [Blocker() for _ in range(7)]
    for queue, blocker in zip(queues, blockers, strict=False):
        queue.post(blocker, workers)
        assert blocker.begun.wait(GUARD)
    with switch_interval(GUARD):
        for queue in queues[7:]:
            drained(queue, workers)
    assert 7 <= len(workers.threads()) <= 10
    for blocker in blockers:
        blocker.let_go.set()


def post_together(queues: list[SerialQueue], items: list, workers: WorkerPool) -> None:
    """Post on a thread like the I/O thread; no worker takes a queue before all of them are ready."""

    def post() -> None:
        with in_sleepless_thread(), lock_of(workers):
            for queue, item in zip(queues, items, strict=True):
                queue.post(item, workers)

    thread = threading.Thread(target=post)
    thread.start()
    thread.join(GUARD)


def test_queues_that_become_ready_together_wake_few_workers(workers):
    """Items posted by a thread before its new worker has arrived are run by that worker, and hardly by others."""
    queues = [SerialQueue() for _ in range(50)]
    for _ in range(3):  # the first time there are no idle workers
        done = threading.Semaphore(0)
        ran_on: list[int] = []

        def item(ran_on=ran_on, done=done) -> None:
            ran_on.append(threading.get_ident())
            done.release()

        post_together(queues, [item] * len(queues), workers)
        for _ in queues:
            assert done.acquire(timeout=GUARD)
    assert len(set(ran_on)) <= 10


@pytest.mark.parametrize(("idle", "count"), [(0, 20), (1, 2)])
def test_blocked_queues_that_become_ready_together_all_run(workers, idle, count):
    """Each new worker calls another one as long as a queue waits: all items block at once."""
    for _ in range(idle):
        drained(SerialQueue(), workers)
    until(lambda: len(idle_workers(workers)) == idle)
    blockers = [Blocker() for _ in range(count)]
    post_together([SerialQueue() for _ in blockers], blockers, workers)
    for blocker in blockers:
        assert blocker.begun.wait(GUARD)
    for blocker in blockers:
        blocker.let_go.set()


def test_a_worker_on_its_way_in_is_not_missed(workers, monkeypatch):
    """`threads()` includes a thread that was started but does not run yet."""
    begin = threading.Event()

    def start_late(role: str, target, *args) -> threading.Thread:
        return start_thread(role, lambda: (begin.wait(GUARD), target(*args)))

    monkeypatch.setattr(module, "start_thread", start_late)
    queue, done = SerialQueue(), threading.Event()
    queue.post(done.set, workers)
    with running(workers.threads) as asking:
        assert asking.goes_on(0.05)
        begin.set()
        (thread,) = asking.get()
    assert done.wait(GUARD)
    assert thread in package_threads()


def test_ctrl_c_while_a_worker_is_called(workers, monkeypatch):
    """The worker may not arrive; the next queue calls another one, which takes both queues."""
    first, second = threading.Event(), threading.Event()

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    put(monkeypatch, module, "worker", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SerialQueue().post(first.set, workers)
    SerialQueue().post(second.set, workers)
    assert first.wait(GUARD)
    assert second.wait(GUARD)


def test_idle_workers_leave(workers, monkeypatch):
    """A worker that has had nothing to do for a while ends, and the next item gets a new one."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.01)
    queue = SerialQueue()
    for _ in range(3):
        drained(queue, workers)
        for thread in workers.threads():
            thread.join(GUARD)
        assert workers.threads() == []


def test_work_that_comes_as_the_worker_leaves_is_done(workers, monkeypatch):
    """Whatever the moment at which a worker's patience ends, no item is left behind."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.0005)
    queue = SerialQueue()
    rng = random.Random(3)
    for _ in range(300):
        drained(queue, workers)
        until = time.perf_counter() + rng.uniform(0, 0.001)
        while time.perf_counter() < until:
            pass


def test_close_ends_idle_workers_and_busy_ones_after_their_work(workers):
    """After `close()` the idle threads end at once; a busy one runs its queue empty first."""
    idle, busy = SerialQueue(), SerialQueue()
    blocker, done = Blocker(), []
    busy.post(blocker, workers)
    assert blocker.begun.wait(GUARD)
    drained(idle, workers)
    busy.post(lambda: done.append(1), workers)
    workers.close()
    remaining = workers.threads()
    deadline = time.monotonic() + GUARD
    while len(workers.threads()) > 1 and time.monotonic() < deadline:
        for thread in remaining:
            thread.join(0.01)
    (last,) = workers.threads()
    blocker.let_go.set()
    last.join(GUARD)
    assert not last.is_alive()
    assert done == [1]


def test_items_posted_after_close_still_run(workers):
    """An event posted as the last session ends is still delivered, and its thread does not stay."""
    workers.close()
    drained(SerialQueue(), workers)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_item_that_raises_is_logged_and_the_queue_goes_on(workers, caplog, error):
    """Whatever an item raises, later items run, in order, and other queues are not concerned."""
    queue, blocker = SerialQueue(), Blocker()
    seen: list[int] = []

    def fail() -> None:
        raise error("mine")

    with caplog.at_level(logging.ERROR):
        queue.post(blocker, workers)
        for n in range(3):
            queue.post(fail, workers)
            queue.post(functools.partial(seen.append, n), workers)
        blocker.let_go.set()
        drained(queue, workers)
    assert seen == [0, 1, 2]
    assert caplog.text.count("mine") >= 3
    assert len(workers.threads()) <= 2


def broken_filter(_: logging.LogRecord) -> bool:
    """Fail like a filter that reads a missing attribute of the record."""
    raise AttributeError("request_id")


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_log_that_fails_stops_no_queue(workers, capsys, error):
    """`logging` does not guard filters: their errors are printed, as handlers of `logging` do it."""
    handler = logging.StreamHandler()
    handler.addFilter(broken_filter)
    package = logging.getLogger("rtvi_sync")
    package.addHandler(handler)
    queue = SerialQueue()

    def item() -> None:
        raise error("an item")

    try:
        queue.post(item, workers)
        drained(queue, workers)
    finally:
        package.removeHandler(handler)
    assert "request_id" in capsys.readouterr().err


def test_too_many_items(workers):
    """The queue takes `max_items` and then raises; `force` queues anyway; items that have run make room."""
    queue, blocker = SerialQueue(max_items=3), Blocker()
    seen: list[object] = []
    queue.post(blocker, workers)
    assert blocker.begun.wait(GUARD)
    for n in range(3):
        queue.post(functools.partial(seen.append, n), workers)
    with pytest.raises(QueueOverflow):
        queue.post(lambda: seen.append("refused"), workers)
    queue.post(lambda: seen.append("forced"), workers, force=True)
    blocker.let_go.set()
    drained(queue, workers)
    queue.post(lambda: seen.append("room"), workers)
    drained(queue, workers)
    assert seen == [0, 1, 2, "forced", "room"]


def test_too_many_bytes(workers):
    """The queue takes `max_bytes` of the stated sizes, and counts down as items run."""
    queue, blocker = SerialQueue(max_bytes=100), Blocker()
    queue.post(blocker, workers, 90)
    assert blocker.begun.wait(GUARD)  # a running item does not wait any more
    queue.post(int, workers, 60)
    queue.post(int, workers, 40)
    with pytest.raises(QueueOverflow):
        queue.post(int, workers, 1)
    queue.post(int, workers, 0)
    queue.post(int, workers, 50, force=True)
    blocker.let_go.set()
    drained(queue, workers)
    queue.post(int, workers, 100)
    drained(queue, workers)


def test_when_decides_together_with_the_place_in_the_queue(workers):
    """`when` is called under the lock: its decisions have the order of the queue, on any thread."""
    queue = SerialQueue()
    value = [0]
    seen: list[int] = []

    def post_one() -> None:
        mine: list[int] = []

        def step() -> bool:
            value[0] += 1
            mine.append(value[0])
            return True

        assert queue.post_if(step, lambda: seen.append(mine[0]), workers)

    def post() -> None:
        for _ in range(200):
            post_one()

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    drained(queue, workers)
    assert seen == list(range(1, 801))


def test_when_says_no(workers):
    """If `when` returns False nothing is queued; without an item it only decides; an error in it leaves no trace."""
    queue, seen = SerialQueue(), []
    assert not queue.post_if(lambda: False, lambda: seen.append(1), workers)
    assert not queue.post_if(lambda: False, None, workers)
    assert queue.post_if(lambda: True, None, workers)
    with pytest.raises(ZeroDivisionError):
        queue.post_if(lambda: 1 / 0 == 0, int, workers)
    assert len(queue) == 0
    assert workers.threads() == []
    drained(queue, workers)
    assert seen == []


def test_a_queue_knows_the_thread_that_runs_its_item(workers):
    """`is_current` is true inside an item of the queue, and nowhere else."""
    queue, other, seen = SerialQueue(), SerialQueue(), []
    queue.post(lambda: seen.append((queue.is_current, other.is_current)), workers)
    drained(queue, workers)
    assert seen == [(True, False)]
    assert not queue.is_current


def test_an_item_may_post(workers):
    """An item that posts to its own queue and to another does not wait; its own item follows the queued ones."""
    queue, other, seen, blocker = SerialQueue(), SerialQueue(), [], Blocker()

    def item() -> None:
        queue.post(lambda: seen.append("own"), workers)
        other.post(lambda: seen.append("other"), workers)
        drained(other, workers)

    queue.post(blocker, workers)
    queue.post(item, workers)
    queue.post(lambda: seen.append("before"), workers)
    blocker.let_go.set()
    drained(queue, workers)
    drained(queue, workers)
    assert seen == ["other", "before", "own"]


def test_many_posters_and_many_queues(workers):
    """Under contention nothing is lost or doubled, the order of each poster holds, and no queue runs twice at once."""
    count, posters, each = 20, 6, 300
    queues = [SerialQueue() for _ in range(count)]
    seen: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    inside = [0] * count

    def item(queue: int, poster: int, n: int) -> None:
        inside[queue] += 1
        assert inside[queue] == 1
        seen[queue].append((poster, n))
        inside[queue] -= 1

    def post(poster: int) -> None:
        rng = random.Random(poster)
        for n in range(each):
            queue = rng.randrange(count)
            queues[queue].post(functools.partial(item, queue, poster, n), workers)

    threads = [threading.Thread(target=post, args=(n,)) for n in range(posters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    for queue in queues:
        drained(queue, workers)
    assert sum(map(len, seen)) == posters * each
    for items in seen:
        for poster in range(posters):
            mine = [n for p, n in items if p == poster]
            assert mine == sorted(mine)
    assert inside == [0] * count


# -- manual -----------------------------------------------------------------------------------------------------------


def test_a_manual_queue_runs_where_it_is_told_to(workers):
    """Only `run_queued()` runs the items of a manual queue, on the calling thread; no worker is started."""
    queue, seen = SerialQueue(manual=True), []

    def item(n: int) -> None:
        seen.append((n, threading.current_thread()))

    for n in range(3):
        queue.post(functools.partial(item, n), workers)
    assert workers.threads() == []
    assert len(queue) == 3
    assert queue.run_queued(Deadline(0.0)) == 3
    assert seen == [(n, threading.current_thread()) for n in range(3)]
    assert queue.run_queued(Deadline(0.0)) == 0


def test_what_items_post_runs_the_next_time(workers):
    """`run_queued()` runs the items queued at its start, so that items which post items do not keep it for ever."""
    queue, seen = SerialQueue(manual=True), []

    def item() -> None:
        seen.append(1)
        queue.post(item, workers)

    queue.post(item, workers)
    assert queue.run_queued(Deadline(0.0)) == 1
    assert queue.run_queued(Deadline(0.0)) == 1
    assert len(seen) == 2


def test_waiting_for_a_first_item(workers):
    """`run_queued()` waits for an item until its deadline, without limit too."""
    queue, seen = SerialQueue(manual=True), []
    assert queue.run_queued(Deadline(0.01)) == 0
    for deadline in (Deadline(None), Deadline(GUARD)):
        with running(functools.partial(queue.run_queued, deadline)) as waiting:
            queue.post(lambda: seen.append(1), workers)
            assert waiting.get() == 1
    assert seen == [1, 1]


def test_until_ends_the_wait(workers):
    """`wake()` makes a waiting `run_queued()` ask its `until` again, and it gives up when that is true."""
    queue = SerialQueue(manual=True)
    asked = threading.Event()
    over: list[int] = []

    def until() -> bool:
        asked.set()
        return bool(over)

    with running(lambda: queue.run_queued(Deadline(None), until)) as waiting:
        assert asked.wait(GUARD)
        queue.wake()
        asked.clear()
        assert asked.wait(GUARD) or waiting.done
        assert not waiting.done
        over.append(1)
        queue.wake()
        assert waiting.get() == 0


def test_items_are_run_even_if_until_is_true_already(workers):
    """Queued items run before `until` is called."""
    queue = SerialQueue(manual=True)
    queue.post(int, workers)
    assert queue.run_queued(Deadline(0.0), until=lambda: True) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_an_item_reaches_the_caller(workers, error):
    """On the user's own thread an exit or Ctrl-C passes through; the next call runs the remaining items."""
    queue, seen = SerialQueue(manual=True), []

    def fail() -> None:
        raise error

    queue.post(fail, workers)
    queue.post(lambda: seen.append(1), workers)
    with pytest.raises(error):
        queue.run_queued(Deadline(0.0))
    assert not queue.is_current
    assert queue.run_queued(Deadline(0.0)) == 1
    assert seen == [1]


def test_only_one_thread_runs_a_manual_queue(workers):
    """A second caller waits for its turn, or until its deadline; items keep their order over both."""
    queue, blocker, seen = SerialQueue(manual=True), Blocker(), []
    queue.post(blocker, workers)
    with running(lambda: queue.run_queued(Deadline(GUARD))) as first:
        assert blocker.begun.wait(GUARD)
        queue.post(lambda: seen.append(1), workers)
        assert queue.run_queued(Deadline(0.01)) == 0
        with running(lambda: queue.run_queued(Deadline(GUARD))) as second:
            blocker.let_go.set()
            assert first.get() == 1
            assert second.get() == 1
    assert seen == [1]


def test_the_end_of_a_worker_wakes_the_thread_that_waits_for_it(workers):
    """A thread that wants to drain a queue itself (at exit) goes on as soon as the worker has emptied it."""
    queue, blocker, delivered = SerialQueue(), Blocker(), threading.Event()
    queue.post(blocker, workers)
    queue.post(delivered.set, workers)
    assert blocker.begun.wait(GUARD)
    asked = threading.Event()

    def until() -> bool:
        asked.set()
        return delivered.is_set()

    with running(lambda: queue.run_queued(Deadline(None), until)) as waiting:
        assert asked.wait(GUARD)
        blocker.let_go.set()
        assert waiting.get() == 0


def test_when_no_thread_can_be_started_the_items_stay(workers, monkeypatch):
    """An interpreter that shuts down starts no thread: the items wait until the queue is drained otherwise."""
    queue, seen = SerialQueue(), []

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(module, "start_thread", refuse)
        queue.post(lambda: seen.append(1), workers)
        queue.post(lambda: seen.append(2), workers)
    assert workers.threads() == []
    assert queue.run_queued(Deadline(0.0)) == 2
    queue.post(lambda: seen.append(3), workers)
    drained(queue, workers)
    assert seen == [1, 2, 3]


def test_a_thread_that_the_system_has_later_drains_the_queues(monkeypatch):
    """If no thread is available at the moment, and nothing more is posted, the queue is still drained."""
    queue, seen = SerialQueue(), threading.Event()
    refused: list[object] = []

    def refuse_twice(*args):
        if len(refused) < 2:
            refused.append(args)
            raise NoThreadError("can't start new thread")
        return start_thread(*args)

    io = IOThread()
    workers = WorkerPool(io)
    monkeypatch.setattr(module, "start_thread", refuse_twice)
    try:
        queue.post(seen.set, workers)
        assert seen.wait(GUARD)
        assert len(refused) == 2
    finally:
        workers.close()
        io.close()
        for thread in (io.thread, *workers.threads()):
            thread.join(GUARD)


def test_a_forked_child_starts_with_an_empty_queue(workers):
    """In a child no thread drains the queue or holds its lock: it is empty, and works with new workers."""
    queue, blocker = SerialQueue(), Blocker()
    queue.post(blocker, workers)
    assert blocker.begun.wait(GUARD)
    queue.post(int, workers, 10)

    def child() -> object:
        queue.after_fork_in_child()
        seen: list[int] = []
        new = WorkerPool()
        queue.post(lambda: seen.append(1), new)
        drained(queue, new)
        new.close()
        return len(queue), seen, queue.is_current

    with lock_of(queue):
        assert in_child(child) == (0, [1], False)
    blocker.let_go.set()
    drained(queue, workers)


def test_workers_are_threads_of_the_package(workers):
    """Workers are named and daemons like every thread of the package."""
    drained(SerialQueue(), workers)
    assert set(workers.threads()) <= package_threads()
    assert all(thread.name.startswith("rtvi-worker-") for thread in workers.threads())


def test_ctrl_c_before_a_worker_is_called(workers):
    """Ctrl-C arrives after an item was queued and before a worker was called: the next post has it run too."""

    class Interrupted(WorkerPool):
        def submit(self, work: Drainable) -> None:
            raise KeyboardInterrupt

    queue, seen, done = SerialQueue(), [], threading.Event()
    with pytest.raises(KeyboardInterrupt):
        queue.post(lambda: seen.append("first"), Interrupted())
    queue.post(done.set, workers)
    assert done.wait(GUARD)
    assert seen == ["first"]


def test_ctrl_c_before_a_worker_is_called_for_a_queue_that_is_ready(workers, monkeypatch):
    """Although the queue is ready already, no worker was called: the next post calls one."""
    queue, seen, done = SerialQueue(), [], threading.Event()

    def interrupted() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    put(monkeypatch, workers, "call a worker", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queue.post(lambda: seen.append("first"), workers)
    queue.post(done.set, workers)
    assert done.wait(GUARD)
    assert seen == ["first"]


def test_ctrl_c_before_a_called_worker_is_woken(workers, monkeypatch):
    """A worker that Ctrl-C keeps from being woken wakes by itself, rests again, and ends without an error."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.05)
    crashed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", crashed.append)
    drained(SerialQueue(), workers)
    until(lambda: idle_workers(workers))
    idle_workers(workers).popitem()
    until(lambda: not workers.threads())
    assert crashed == []
    assert not idle_workers(workers)


def test_a_worker_that_is_woken_too_often(workers):
    """A worker that is woken without work rests again, and runs the next item."""
    drained(SerialQueue(), workers)
    until(lambda: idle_workers(workers))
    (worker,) = idle_workers(workers)
    for _ in range(2):
        worker.wake()
    until(lambda: worker.sleeper.locked() and worker in idle_workers(workers))
    drained(SerialQueue(), workers)
    assert worker.thread in workers.threads()


def test_a_worker_that_comes_for_a_queue_that_another_thread_drains(workers):
    """drain() of a queue that another thread drains runs nothing and does not wait."""
    queue, blocker, ran_on = SerialQueue(), Blocker(), []
    queue.post(blocker, workers)
    assert blocker.begun.wait(GUARD)
    queue.post(lambda: ran_on.append(threading.current_thread()), workers)
    queue.drain()
    assert ran_on == []
    assert len(queue) == 1
    blocker.let_go.set()
    drained(queue, workers)
    assert threading.current_thread() not in ran_on
    assert len(ran_on) == 1


def test_posts_while_the_worker_is_on_its_way(workers):
    """If a queue is submitted several times before its worker arrives, each item runs once, in order, on one thread."""
    queues = [SerialQueue() for _ in range(20)]
    seen: list[tuple[int, int]] = []
    done = threading.Semaphore(0)
    for n in range(50):
        for index, queue in enumerate(queues):
            queue.post(functools.partial(seen.append, (index, n)), workers)
    for queue in queues:
        queue.post(done.release, workers)
    for _ in queues:
        assert done.acquire(timeout=GUARD)
    for index in range(20):
        assert [n for queue_index, n in seen if queue_index == index] == list(range(50))


@pytest.mark.parametrize("room", [0, 1, 3])
def test_what_comes_together_fills_the_queue(workers, room):
    """Of items posted together, as many are queued as there is room for, in order."""
    blocked, blocker, done, seen = SerialQueue(max_items=room + 1), Blocker(), threading.Event(), []
    blocked.post(blocker, workers)
    assert blocker.begun.wait(GUARD)
    blocked.post(lambda: None, workers)
    with pytest.raises(QueueOverflow):
        blocked.post_all([(lambda item: seen.append(item[1]), n, 1) for n in range(room + 2)], workers, room + 2)
    assert (len(blocked), blocked.bytes_queued) == (room + 1, room)
    blocked.post(done.set, workers, force=True)
    blocker.let_go.set()
    assert done.wait(GUARD)
    assert seen == list(range(room))
    assert blocked.bytes_queued == 0


def test_what_of_it_had_room_runs_at_once(workers):
    """Of items posted together that are too many for the queue, the queued ones wait for no further post."""
    queue, seen = SerialQueue(max_items=3), threading.Semaphore(0)
    with pytest.raises(QueueOverflow):
        queue.post_all([(lambda item: seen.release(), 0)] * 5, workers, 0)
    for _ in range(3):
        assert seen.acquire(timeout=GUARD)
    drained(queue, workers)
    assert not seen.acquire(blocking=False)
