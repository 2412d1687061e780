"""How queue workers take the io thread's place while it runs what it has read."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rtvi_sync.concurrency import worker_pool as lane_workers
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.serial_queue import SerialQueue
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support.forking import in_child
from tests.support.loopback import LIMIT
from tests.support.waiting import until

from .test_io_thread import on
from .test_serial_queue import Blocker, drained


class Crew:
    """An io thread, and the workers who relieve it."""

    def __init__(self) -> None:
        self.io = IOThread()
        self.workers = WorkerPool(self.io)

    def post(self, *items: tuple[SerialQueue, Callable[[], object]]) -> None:
        """Queue functions in their queues, on the io thread and all before it waits again."""
        self.io.call(lambda: [queue.post(item, self.workers) for queue, item in items])

    def rest(self) -> None:
        """Wait until one worker rests."""
        drained(SerialQueue(), self.workers)
        until(lambda: self.workers._idle)

    def close(self) -> None:
        self.workers.close()
        self.io.close()
        threads = self.workers.threads()
        assert self.io.thread in threads or not self.io.thread.is_alive()
        for thread in threads:
            thread.join(LIMIT)
        assert self.workers.threads() == []


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[Crew]:
    """A crew whose threads must all leave after the test; it counts as rested whenever it waits."""
    monkeypatch.setattr(lane_workers, "_MIN_IDLE_TIME", 0.0)
    crew = Crew()
    yield crew
    crew.close()


def thread_of(crew: Crew, queue: SerialQueue) -> threading.Thread:
    """The thread that runs an item which is queued on the io thread."""
    ran_on: list[threading.Thread] = []
    crew.post((queue, lambda: ran_on.append(threading.current_thread())))
    until(lambda: ran_on)
    return ran_on[0]


def test_the_io_thread_runs_what_became_ready_on_it(crew):
    """An idle worker takes its place, and has it until the next time."""
    crew.rest()
    first, second = crew.io.thread, crew.workers._idle[0].thread
    queue = SerialQueue()
    for before, after in ((first, second), (second, first), (first, second)):
        assert on(crew.io, threading.current_thread) is crew.io.thread is before
        assert thread_of(crew, queue) is before
        assert on(crew.io, threading.current_thread) is crew.io.thread is after
        until(lambda: crew.workers._idle)


def test_a_thread_is_named_by_its_role(crew):
    """Items run on threads named rtvi-worker-<n> only, and commands on one named rtvi-io-<n>; each keeps its number."""
    crew.rest()
    threads = [crew.io.thread, crew.workers._idle[0].thread]
    numbers = [thread.name.rpartition("-")[2] for thread in threads]
    for turn in range(3):
        reader, other = turn % 2, 1 - turn % 2
        ran_on: list[str] = []
        crew.post((SerialQueue(), lambda ran_on=ran_on: ran_on.append(threading.current_thread().name)))
        until(lambda ran_on=ran_on: ran_on)
        assert ran_on == [f"rtvi-worker-{numbers[reader]}"]
        assert on(crew.io, lambda: threading.current_thread().name) == f"rtvi-io-{numbers[other]}"
        until(lambda: crew.workers._idle)


def test_nobody_is_there_to_take_its_place(crew):
    """The io thread goes on, and a new worker runs the item."""
    reader = crew.io.thread
    assert thread_of(crew, SerialQueue()) is not reader
    assert crew.io.thread is reader


def test_an_io_thread_that_has_not_rested(crew, monkeypatch):
    """It goes on to read, and an idle worker runs the item; once it has rested it runs the next one itself."""
    crew.rest()
    reader = crew.io.thread
    monkeypatch.setattr(lane_workers, "_MIN_IDLE_TIME", LIMIT)
    assert thread_of(crew, SerialQueue()) is not reader
    assert crew.io.thread is reader
    until(lambda: crew.workers._idle)
    monkeypatch.setattr(lane_workers, "_MIN_IDLE_TIME", 1e-6)
    assert thread_of(crew, SerialQueue()) is reader


def test_it_knows_how_long_it_rested(crew):
    """From its last look to the next thing to do."""
    begun = time.monotonic()
    on(crew.io, int)
    threading.Event().wait(0.02)
    rested = on(crew.io, lambda: crew.io.idle_time)
    assert 0.01 < rested <= time.monotonic() - begun


def test_the_only_idle_worker_leaves_in_the_very_moment(crew):
    """As if it had not been there: a new worker runs the item."""
    crew.rest()
    reader, ran_on = crew.io.thread, []

    def post() -> None:
        SerialQueue().post(lambda: ran_on.append(threading.current_thread()), crew.workers)
        (worker,) = crew.workers._idle
        with crew.workers._lock:
            crew.workers._idle.clear()
        leaving.append(worker)

    leaving: list[lane_workers._Worker] = []
    crew.io.call(post)
    until(lambda: ran_on)
    assert crew.io.thread is reader is not ran_on[0]
    leaving[0].idle = False  # it wakes, and rests again
    leaving[0].notifier.notify_all()


def test_a_worker_that_was_awake_was_faster(crew):
    """Nothing is left to do: the io thread stays where it is, and the next queue is run all the same."""
    crew.rest()
    queue, reader = SerialQueue(), crew.io.thread
    promote = crew.workers.promote

    def late() -> bool:
        with crew.workers._lock:
            crew.workers._ready.clear()
        queue.drain()
        crew.workers.promote = promote  # type: ignore[method-assign]
        return promote()

    ran_on: list[threading.Thread] = []

    def post() -> None:
        queue.post(lambda: ran_on.append(threading.current_thread()), crew.workers)
        crew.workers.promote = late  # type: ignore[method-assign]

    crew.io.call(post)
    until(lambda: ran_on)
    assert on(crew.io, threading.current_thread) is reader
    assert thread_of(crew, queue) is reader
    assert crew.io.thread is not reader


def test_an_item_that_blocks_holds_up_its_lane_only(crew):
    """The new io thread serves commands and timers, and queues that become ready meanwhile are run."""
    crew.rest()
    blocker, slow, other = Blocker(), SerialQueue(), SerialQueue()
    seen: list[int] = []
    reader = crew.io.thread
    crew.post((slow, blocker), (other, lambda: seen.append(0)))
    assert blocker.begun.wait(LIMIT)
    assert crew.io.thread is not reader
    crew.post((slow, lambda: seen.append(-1)))
    until(lambda: seen == [0])
    late = threading.Event()
    on(crew.io, lambda: crew.io.call_later(0.0, late.set))
    assert late.wait(LIMIT)
    for n in range(1, 10):
        crew.post((other, lambda n=n: seen.append(n)))
        until(lambda n=n: seen[-1] == n)
    assert seen == list(range(10))
    blocker.let_go.set()
    until(lambda: seen[-1] == -1)


def test_a_timer_makes_a_lane_ready(crew):
    """The io thread runs the item, though nothing comes that would wake it."""
    crew.rest()
    reader, ran_on = crew.io.thread, []
    queue = SerialQueue()

    def post() -> None:
        queue.post(lambda: ran_on.append(threading.current_thread()), crew.workers)

    on(crew.io, lambda: crew.io.call_later(0.01, post))
    until(lambda: ran_on)
    assert ran_on == [reader]


def test_an_item_waits_for_the_io_thread(crew):
    """It may, although it runs on the thread that was the io thread a moment before."""
    crew.rest()
    answers: list[object] = []
    crew.post((SerialQueue(), lambda: answers.append(on(crew.io, lambda: "answer"))))
    until(lambda: answers)
    assert answers == ["answer"]


def test_items_keep_their_order(crew):
    """What a queue is given on the io thread and elsewhere runs in that order, one at a time, however often it turns."""
    queue, seen, busy = SerialQueue(), [], threading.Lock()

    def item(n: int) -> None:
        assert busy.acquire(blocking=False)
        seen.append(n)
        busy.release()

    for n in range(2000):
        if n % 3:
            crew.post((queue, lambda n=n: item(n)))
        else:
            on(crew.io, int)
            queue.post(lambda n=n: item(n), crew.workers)
    on(crew.io, int)
    drained(queue, crew.workers)
    assert seen == list(range(2000))


def test_much_to_read(crew):
    """A queue that gets more before the io thread would wait does not wait for that: a worker comes at once."""
    crew.rest()
    queue, ran_on = SerialQueue(), []

    def read_much() -> None:
        done = threading.Event()
        for _ in range(3):
            queue.post(lambda: ran_on.append(threading.current_thread()), crew.workers)
        queue.post(done.set, crew.workers)
        assert done.wait(LIMIT)

    reader = crew.io.thread
    on(crew.io, read_much)
    assert len(ran_on) == 3
    assert reader not in ran_on
    assert on(crew.io, threading.current_thread) is reader
    until(lambda: crew.workers._idle)
    assert thread_of(crew, queue) is reader


def test_it_ends_while_an_item_runs(crew):
    """`close()` ends the thread that reads now; the one that runs an item leaves when that is done."""
    crew.rest()
    blocker = Blocker()
    reader = crew.io.thread
    crew.post((SerialQueue(), blocker))
    assert blocker.begun.wait(LIMIT)
    crew.workers.close()
    crew.io.close()
    until(lambda: not crew.io.thread.is_alive())
    assert crew.workers.threads() == [reader]
    blocker.let_go.set()
    reader.join(LIMIT)
    assert not reader.is_alive()


def test_what_is_queued_by_the_last_command(crew):
    """It is run, although the io thread ends without waiting once more."""
    crew.rest()
    seen: list[int] = []

    def last() -> None:
        crew.io._stop()
        SerialQueue().post(lambda: seen.append(1), crew.workers)

    crew.io.call(last)
    until(lambda: seen)
    until(lambda: not crew.io.thread.is_alive())


def test_what_is_queued_at_the_very_end(crew):
    """A connection that is left when the io thread ends may have something to say: a worker runs it."""
    crew.rest()
    said = threading.Event()

    class Left:
        def __init__(self) -> None:
            self.ours, self.peer = socket.socketpair()

        def fileno(self) -> int:
            return self.ours.fileno()

        def on_readable(self) -> None:
            raise AssertionError

        def on_failure(self, error: BaseException) -> None:
            SerialQueue().post(said.set, crew.workers)

    left = Left()
    with left.ours, left.peer:
        on(crew.io, lambda: crew.io.register(left))
        crew.io.close()
        assert said.wait(LIMIT)


def test_after_a_rest(crew, monkeypatch):
    """A thread that was the io thread leaves as any idle worker does; the next queue gets a new one."""
    crew.rest()
    reader = crew.io.thread
    monkeypatch.setattr(lane_workers, "IDLE_TIMEOUT", 0.05)
    assert thread_of(crew, SerialQueue()) is reader
    reader.join(LIMIT)
    assert not reader.is_alive()
    assert crew.workers.threads() == [crew.io.thread]
    assert thread_of(crew, SerialQueue()) is not crew.io.thread


def test_a_fork_by_an_item(crew):
    """In the child the thread that was the io thread reads nothing, and takes no further queue."""
    crew.rest()
    reader = crew.io.thread
    answers: list[object] = []

    def fork() -> None:
        # What runs after the item is run in the child too, and must end there.
        answers.append(in_child(lambda: (crew.io.is_current, threading.current_thread() is reader)))

    crew.post((SerialQueue(), fork))
    until(lambda: answers)
    assert answers == [(False, True)]
    assert on(crew.io, threading.current_thread) is crew.io.thread is not reader


def test_many_turns_under_load(crew):
    """Commands of several threads, items of several queues: each is run once, and the crew stays small."""
    counts = [0] * 8
    own_lanes = [SerialQueue() for _ in counts]

    def count(index: int) -> None:
        counts[index] += 1

    def give(index: int) -> None:
        for n in range(300):
            crew.post((own_lanes[index], lambda: count(index)))
            if n % 7 == index:
                on(crew.io, int)

    threads = [threading.Thread(target=give, args=(index,)) for index in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: counts == [300] * len(counts))
    assert len(crew.workers.threads()) <= 2 + len(counts)
