"""Lanes: order, isolation, few workers, limits."""

from __future__ import annotations

import logging
import random
import threading
import time

import pytest

from rtvi_sync.concurrency import worker_pool as lane_workers
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.latch import sleepless
from rtvi_sync.concurrency.lifecycle import NoThreadError
from rtvi_sync.concurrency.serial_queue import Lane, LaneOverflow
from rtvi_sync.concurrency.worker_pool import LaneWorkers

from ..client.helpers import until
from ..conftest import package_threads
from ..forking import in_child
from ..loopback import LIMIT, running


@pytest.fixture
def workers():
    """Workers that are sent home after the test; none may stay."""
    workers = LaneWorkers()
    yield workers
    workers.close()
    for thread in workers.threads():
        thread.join(LIMIT)
    assert workers.threads() == []


class Blocker:
    """An item that blocks until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.let_go.wait(LIMIT)


def drained(lane: Lane, workers: LaneWorkers) -> None:
    """Wait until all that is queued in `lane` now has run."""
    done = threading.Event()
    lane.post(done.set, workers, force=True)
    assert done.wait(LIMIT)


def test_items_run_in_order_one_at_a_time(workers):
    """What is posted runs in that order and never on two threads at once."""
    lane = Lane()
    seen: list[int] = []
    running_now = [0]

    def item(n: int) -> None:
        running_now[0] += 1
        assert running_now[0] == 1
        seen.append(n)
        running_now[0] -= 1

    for n in range(1000):
        lane.post(lambda n=n: item(n), workers)
    drained(lane, workers)
    assert seen == list(range(1000))


def test_an_item_that_comes_while_its_worker_leaves(workers, monkeypatch):
    """What is posted after the worker's last look, while it still has the lane, is run and not left lying."""
    lane, late = Lane(), threading.Event()
    release = lane._release

    def post_and_release() -> None:
        monkeypatch.setattr(lane, "_release", release)
        lane.post(late.set, workers)
        release()

    monkeypatch.setattr(lane, "_release", post_and_release)
    lane.post(int, workers)
    assert late.wait(LIMIT)


def test_a_blocked_lane_holds_up_nobody_else(workers):
    """While the item of one lane blocks, the others run on; its own later items wait."""
    blocked, other = Lane(), Lane()
    blocker, order = Blocker(), []
    blocked.post(blocker, workers)
    blocked.post(lambda: order.append("late"), workers)
    assert blocker.begun.wait(LIMIT)
    for _ in range(5):
        drained(other, workers)
    assert order == []
    assert len(blocked) == 1
    blocker.let_go.set()
    drained(blocked, workers)
    assert order == ["late"]


def test_there_are_as_many_workers_as_items_run_at_once(workers):
    """500 lanes that are served one after the other need one thread; 7 blocked ones need one each, and one more."""
    lanes_ = [Lane() for _ in range(500)]
    for lane in lanes_:
        drained(lane, workers)
    # A worker may still be on its way from the item to the idle ones when the next one is wanted.
    assert len(workers.threads()) <= 3
    blockers = [Blocker() for _ in range(7)]
    for lane, blocker in zip(lanes_, blockers, strict=False):
        lane.post(blocker, workers)
        assert blocker.begun.wait(LIMIT)
    for lane in lanes_[7:]:
        drained(lane, workers)
    assert 7 <= len(workers.threads()) <= 10
    for blocker in blockers:
        blocker.let_go.set()


def post_together(lanes_: list[Lane], items: list, workers: LaneWorkers) -> None:
    """Post on a thread like the io thread; no worker takes a lane before all of them are ready."""

    def post() -> None:
        with sleepless(), workers._lock:
            for lane, item in zip(lanes_, items, strict=True):
                lane.post(item, workers)

    thread = threading.Thread(target=post)
    thread.start()
    thread.join(LIMIT)


def test_lanes_that_become_ready_together_wake_few_workers(workers):
    """What a thread posts before the worker that it has called comes is run by that one, and hardly by others."""
    lanes_ = [Lane() for _ in range(50)]
    for _ in range(3):  # the first time there are no idle workers
        done = threading.Semaphore(0)
        ran_on: list[int] = []

        def item(ran_on=ran_on, done=done) -> None:
            ran_on.append(threading.get_ident())
            done.release()

        post_together(lanes_, [item] * len(lanes_), workers)
        for _ in lanes_:
            assert done.acquire(timeout=LIMIT)
    assert len(set(ran_on)) <= 10


@pytest.mark.parametrize(("idle", "count"), [(0, 20), (1, 2)])
def test_blocked_lanes_that_become_ready_together_all_run(workers, idle, count):
    """Each worker that comes calls another one as long as a lane waits: all items block at once."""
    for _ in range(idle):
        drained(Lane(), workers)
    until(lambda: len(workers._idle) == idle)
    blockers = [Blocker() for _ in range(count)]
    post_together([Lane() for _ in blockers], blockers, workers)
    for blocker in blockers:
        assert blocker.begun.wait(LIMIT)
    for blocker in blockers:
        blocker.let_go.set()


def test_a_worker_on_its_way_in_is_not_missed(workers, monkeypatch):
    """Whoever waits for the threads to be gone hears of one that has been started and not begun."""
    begin = threading.Event()
    start_thread = lane_workers.start_thread

    def start_late(role: str, target, *args) -> threading.Thread:
        return start_thread(role, lambda: (begin.wait(LIMIT), target(*args)))

    monkeypatch.setattr(lane_workers, "start_thread", start_late)
    lane, done = Lane(), threading.Event()
    lane.post(done.set, workers)
    with running(workers.threads) as asking:
        assert asking.goes_on(0.05)
        begin.set()
        (thread,) = asking.get()
    assert done.wait(LIMIT)
    assert thread in package_threads()


def test_ctrl_c_while_a_worker_is_called(workers, monkeypatch):
    """The worker may not come; the next lane calls another one, which takes both lanes."""
    first, second = threading.Event(), threading.Event()

    def struck() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(lane_workers, "_Worker", struck)
    with pytest.raises(KeyboardInterrupt):
        Lane().post(first.set, workers)
    Lane().post(second.set, workers)
    assert first.wait(LIMIT)
    assert second.wait(LIMIT)


def test_idle_workers_leave(workers, monkeypatch):
    """A worker that has had nothing to do for a while ends, and the next item gets a new one."""
    monkeypatch.setattr(lane_workers, "IDLE_TIMEOUT", 0.01)
    lane = Lane()
    for _ in range(3):
        drained(lane, workers)
        for thread in workers.threads():
            thread.join(LIMIT)
        assert workers.threads() == []


def test_work_that_comes_as_the_worker_leaves_is_done(workers, monkeypatch):
    """Whatever the moment at which a worker's patience ends, no item is left behind."""
    monkeypatch.setattr(lane_workers, "IDLE_TIMEOUT", 0.0005)
    lane = Lane()
    rng = random.Random(3)
    for _ in range(300):
        drained(lane, workers)
        until = time.perf_counter() + rng.uniform(0, 0.001)
        while time.perf_counter() < until:
            pass


def test_close_sends_idle_workers_home_and_busy_ones_after_their_work(workers):
    """After `close()` the idle threads end at once; a busy one runs its lane empty first."""
    idle, busy = Lane(), Lane()
    blocker, done = Blocker(), []
    busy.post(blocker, workers)
    assert blocker.begun.wait(LIMIT)
    drained(idle, workers)
    busy.post(lambda: done.append(1), workers)
    workers.close()
    remaining = workers.threads()
    deadline = time.monotonic() + LIMIT
    while len(workers.threads()) > 1 and time.monotonic() < deadline:
        for thread in remaining:
            thread.join(0.01)
    (last,) = workers.threads()
    blocker.let_go.set()
    last.join(LIMIT)
    assert not last.is_alive()
    assert done == [1]


def test_items_posted_after_close_still_run(workers):
    """An event that comes as the last session ends is delivered all the same, and its thread does not stay."""
    workers.close()
    drained(Lane(), workers)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_item_that_raises_is_logged_and_the_lane_goes_on(workers, caplog, error):
    """Whatever an item raises, later items run, in order, and other lanes are not concerned."""
    lane, seen, blocker = Lane(), [], Blocker()

    def fail() -> None:
        raise error("mine")

    with caplog.at_level(logging.ERROR):
        lane.post(blocker, workers)
        for n in range(3):
            lane.post(fail, workers)
            lane.post(lambda n=n: seen.append(n), workers)
        blocker.let_go.set()
        drained(lane, workers)
    assert seen == [0, 1, 2]
    assert caplog.text.count("mine") >= 3
    assert len(workers.threads()) <= 2


def test_too_many_items(workers):
    """The queue takes `max_items` and then raises; `force` queues all the same; what has run makes room."""
    lane, blocker, seen = Lane(max_items=3), Blocker(), []
    lane.post(blocker, workers)
    assert blocker.begun.wait(LIMIT)
    for n in range(3):
        lane.post(lambda n=n: seen.append(n), workers)
    with pytest.raises(LaneOverflow):
        lane.post(lambda: seen.append("refused"), workers)
    lane.post(lambda: seen.append("forced"), workers, force=True)
    blocker.let_go.set()
    drained(lane, workers)
    lane.post(lambda: seen.append("room"), workers)
    drained(lane, workers)
    assert seen == [0, 1, 2, "forced", "room"]


def test_too_many_bytes(workers):
    """The queue takes `max_bytes` of what it is told, and counts down as items run."""
    lane, blocker = Lane(max_bytes=100), Blocker()
    lane.post(blocker, workers, 90)
    assert blocker.begun.wait(LIMIT)  # what runs does not wait any more
    lane.post(int, workers, 60)
    lane.post(int, workers, 40)
    with pytest.raises(LaneOverflow):
        lane.post(int, workers, 1)
    lane.post(int, workers, 0)
    lane.post(int, workers, 50, force=True)
    blocker.let_go.set()
    drained(lane, workers)
    lane.post(int, workers, 100)
    drained(lane, workers)


def test_when_decides_together_with_the_place_in_the_queue(workers):
    """`when` is asked under the lock: what it decides has the order of the queue, whoever posts."""
    lane = Lane()
    value = [0]
    seen: list[int] = []

    def post() -> None:
        for _ in range(200):
            mine: list[int] = []

            def step(mine=mine) -> bool:
                value[0] += 1
                mine.append(value[0])
                return True

            assert lane.post_if(step, lambda mine=mine: seen.append(mine[0]), workers)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    drained(lane, workers)
    assert seen == list(range(1, 801))


def test_when_says_no(workers):
    """If `when` returns False nothing is queued; without an item it only decides; an error in it leaves no trace."""
    lane, seen = Lane(), []
    assert not lane.post_if(lambda: False, lambda: seen.append(1), workers)
    assert not lane.post_if(lambda: False, None, workers)
    assert lane.post_if(lambda: True, None, workers)
    with pytest.raises(ZeroDivisionError):
        lane.post_if(lambda: 1 / 0 == 0, int, workers)
    assert len(lane) == 0
    assert workers.threads() == []
    drained(lane, workers)
    assert seen == []


def test_a_lane_knows_the_thread_that_runs_its_item(workers):
    """`is_current` is true inside an item of the lane, and nowhere else."""
    lane, other, seen = Lane(), Lane(), []
    lane.post(lambda: seen.append((lane.is_current, other.is_current)), workers)
    drained(lane, workers)
    assert seen == [(True, False)]
    assert not lane.is_current


def test_an_item_may_post(workers):
    """An item that posts to its own lane and to another does not wait; its own comes after what was queued."""
    lane, other, seen, blocker = Lane(), Lane(), [], Blocker()

    def item() -> None:
        lane.post(lambda: seen.append("own"), workers)
        other.post(lambda: seen.append("other"), workers)
        drained(other, workers)

    lane.post(blocker, workers)
    lane.post(item, workers)
    lane.post(lambda: seen.append("before"), workers)
    blocker.let_go.set()
    drained(lane, workers)
    drained(lane, workers)
    assert seen == ["other", "before", "own"]


def test_many_posters_and_many_lanes(workers):
    """Under contention nothing is lost or doubled, the order of each poster holds, and no lane runs twice at once."""
    count, posters, each = 20, 6, 300
    lanes_ = [Lane() for _ in range(count)]
    seen: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    inside = [0] * count

    def item(lane: int, poster: int, n: int) -> None:
        inside[lane] += 1
        assert inside[lane] == 1
        seen[lane].append((poster, n))
        inside[lane] -= 1

    def post(poster: int) -> None:
        rng = random.Random(poster)
        for n in range(each):
            lane = rng.randrange(count)
            lanes_[lane].post(lambda lane=lane, n=n: item(lane, poster, n), workers)

    threads = [threading.Thread(target=post, args=(n,)) for n in range(posters)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    for lane in lanes_:
        drained(lane, workers)
    assert sum(map(len, seen)) == posters * each
    for items in seen:
        for poster in range(posters):
            mine = [n for p, n in items if p == poster]
            assert mine == sorted(mine)
    assert inside == [0] * count


# -- manual -----------------------------------------------------------------------------------------------------------


def test_a_manual_lane_runs_where_it_is_told_to(workers):
    """Nobody but `run_queued()` runs the items of a manual lane, on the calling thread; no worker is started."""
    lane, seen = Lane(manual=True), []
    for n in range(3):
        lane.post(lambda n=n: seen.append((n, threading.current_thread())), workers)
    assert workers.threads() == []
    assert len(lane) == 3
    assert lane.run_queued(Deadline(0.0)) == 3
    assert seen == [(n, threading.current_thread()) for n in range(3)]
    assert lane.run_queued(Deadline(0.0)) == 0


def test_what_items_post_runs_the_next_time(workers):
    """`run_queued()` runs what was queued when it began, so that items which post items do not keep it for ever."""
    lane, seen = Lane(manual=True), []

    def item() -> None:
        seen.append(1)
        lane.post(item, workers)

    lane.post(item, workers)
    assert lane.run_queued(Deadline(0.0)) == 1
    assert lane.run_queued(Deadline(0.0)) == 1
    assert len(seen) == 2


def test_waiting_for_a_first_item(workers):
    """`run_queued()` waits for an item until its deadline, without limit too."""
    lane, seen = Lane(manual=True), []
    assert lane.run_queued(Deadline(0.01)) == 0
    for deadline in (Deadline(None), Deadline(LIMIT)):
        with running(lambda deadline=deadline: lane.run_queued(deadline)) as waiting:
            lane.post(lambda: seen.append(1), workers)
            assert waiting.get() == 1
    assert seen == [1, 1]


def test_until_ends_the_wait(workers):
    """`wake()` makes a waiting `run_queued()` ask its `until` again, and it gives up when that is true."""
    lane = Lane(manual=True)
    asked = threading.Event()
    over: list[int] = []

    def until() -> bool:
        asked.set()
        return bool(over)

    with running(lambda: lane.run_queued(Deadline(None), until)) as waiting:
        assert asked.wait(LIMIT)
        lane.wake()
        asked.clear()
        assert asked.wait(LIMIT) or waiting.done
        assert not waiting.done
        over.append(1)
        lane.wake()
        assert waiting.get() == 0


def test_items_are_run_even_if_until_is_true_already(workers):
    """What is queued runs before anybody asks whether there is something to wait for."""
    lane = Lane(manual=True)
    lane.post(int, workers)
    assert lane.run_queued(Deadline(0.0), until=lambda: True) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_ctrl_c_in_an_item_reaches_the_caller(workers, error):
    """On the user's own thread an exit or Ctrl-C passes through; what is left is run by the next call."""
    lane, seen = Lane(manual=True), []

    def fail() -> None:
        raise error

    lane.post(fail, workers)
    lane.post(lambda: seen.append(1), workers)
    with pytest.raises(error):
        lane.run_queued(Deadline(0.0))
    assert not lane.is_current
    assert lane.run_queued(Deadline(0.0)) == 1
    assert seen == [1]


def test_only_one_thread_runs_a_manual_lane(workers):
    """A second caller waits for its turn, or until its deadline; items keep their order over both."""
    lane, blocker, seen = Lane(manual=True), Blocker(), []
    lane.post(blocker, workers)
    with running(lambda: lane.run_queued(Deadline(LIMIT))) as first:
        assert blocker.begun.wait(LIMIT)
        lane.post(lambda: seen.append(1), workers)
        assert lane.run_queued(Deadline(0.01)) == 0
        with running(lambda: lane.run_queued(Deadline(LIMIT))) as second:
            blocker.let_go.set()
            assert first.get() == 1
            assert second.get() == 1
    assert seen == [1]


def test_whoever_waits_for_a_worker_is_woken_by_its_end(workers):
    """A thread that wants to drain a lane itself (at exit) goes on as soon as the worker has emptied it."""
    lane, blocker, delivered = Lane(), Blocker(), threading.Event()
    lane.post(blocker, workers)
    lane.post(delivered.set, workers)
    assert blocker.begun.wait(LIMIT)
    asked = threading.Event()

    def until() -> bool:
        asked.set()
        return delivered.is_set()

    with running(lambda: lane.run_queued(Deadline(None), until)) as waiting:
        assert asked.wait(LIMIT)
        blocker.let_go.set()
        assert waiting.get() == 0


def test_when_no_thread_can_be_started_the_items_stay(workers, monkeypatch):
    """An interpreter that shuts down starts no thread: the items wait for whoever drains the lane itself."""
    lane, seen = Lane(), []

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(lane_workers, "start_thread", refuse)
        lane.post(lambda: seen.append(1), workers)
        lane.post(lambda: seen.append(2), workers)
    assert workers.threads() == []
    assert lane.run_queued(Deadline(0.0)) == 2
    lane.post(lambda: seen.append(3), workers)
    drained(lane, workers)
    assert seen == [1, 2, 3]


def test_a_thread_that_the_system_has_later_drains_the_lanes(monkeypatch):
    """Where there is no thread to be had just now, and nothing more is posted, the lane is drained all the same."""
    lane, seen, refused = Lane(), threading.Event(), []

    def refuse_twice(*args):
        if len(refused) < 2:
            refused.append(args)
            raise NoThreadError("can't start new thread")
        return start(*args)

    start = lane_workers.start_thread
    io = IOThread()
    workers = LaneWorkers(io)
    monkeypatch.setattr(lane_workers, "start_thread", refuse_twice)
    try:
        lane.post(seen.set, workers)
        assert seen.wait(LIMIT)
        assert len(refused) == 2
    finally:
        workers.close()
        io.close()
        for thread in (io.thread, *workers.threads()):
            thread.join(LIMIT)


def test_a_forked_child_starts_with_an_empty_lane(workers):
    """In a child nobody drains the lane and nobody holds its lock: it is empty, and works with new workers."""
    lane, blocker = Lane(), Blocker()
    lane.post(blocker, workers)
    assert blocker.begun.wait(LIMIT)
    lane.post(int, workers, 10)

    def child() -> object:
        lane.after_fork_in_child()
        seen: list[int] = []
        new = LaneWorkers()
        lane.post(lambda: seen.append(1), new)
        drained(lane, new)
        new.close()
        return len(lane), seen, lane.is_current

    with lane._lock:
        assert in_child(child) == (0, [1], False)
    blocker.let_go.set()
    drained(lane, workers)


def test_workers_are_threads_of_the_package(workers):
    """Workers are named and daemons like every thread of the package."""
    drained(Lane(), workers)
    assert set(workers.threads()) <= package_threads()
    assert all(thread.name.startswith("rtvi-lane-") for thread in workers.threads())


def test_ctrl_c_before_anybody_is_called(workers):
    """Ctrl-C strikes after something was queued and before a worker was called: the next post has it run too."""

    class Interrupted:
        def submit(self, lane: Lane) -> None:
            raise KeyboardInterrupt

    lane, seen, done = Lane(), [], threading.Event()
    with pytest.raises(KeyboardInterrupt):
        lane.post(lambda: seen.append("first"), Interrupted())
    lane.post(done.set, workers)
    assert done.wait(LIMIT)
    assert seen == ["first"]


def test_ctrl_c_before_a_worker_is_called_for_a_lane_that_is_ready(workers, monkeypatch):
    """That the lane is ready already does not mean that anybody comes: the next post calls a worker."""
    lane, seen, done = Lane(), [], threading.Event()

    def struck() -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "_call_worker", struck)
    with pytest.raises(KeyboardInterrupt):
        lane.post(lambda: seen.append("first"), workers)
    lane.post(done.set, workers)
    assert done.wait(LIMIT)
    assert seen == ["first"]


def test_ctrl_c_before_the_worker_is_told_that_it_was_called(workers, monkeypatch):
    """It is no longer among those that rest, and leaves as they do, without an error."""
    monkeypatch.setattr(lane_workers, "IDLE_TIMEOUT", 0.05)
    crashed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", crashed.append)
    drained(Lane(), workers)
    until(lambda: workers._idle)
    worker = workers._idle.pop()
    until(lambda: not workers.threads())
    assert crashed == []
    assert worker.idle


def test_a_worker_that_comes_for_a_lane_that_somebody_drains(workers):
    """It runs nothing and does not wait: whoever has the turn runs what is queued."""
    lane, blocker, ran_on = Lane(), Blocker(), []
    lane.post(blocker, workers)
    assert blocker.begun.wait(LIMIT)
    lane.post(lambda: ran_on.append(threading.current_thread()), workers)
    lane.drain()
    assert ran_on == []
    assert len(lane) == 1
    blocker.let_go.set()
    drained(lane, workers)
    assert threading.current_thread() not in ran_on
    assert len(ran_on) == 1


def test_posts_while_the_worker_is_on_its_way(workers):
    """However often a lane is submitted before its worker has come: each item runs once, in order, on one thread."""
    lanes, seen = [Lane() for _ in range(20)], []
    done = threading.Semaphore(0)
    for n in range(50):
        for index, lane in enumerate(lanes):
            lane.post(lambda index=index, n=n: seen.append((index, n)), workers)
    for lane in lanes:
        lane.post(done.release, workers)
    for _ in lanes:
        assert done.acquire(timeout=LIMIT)
    for index in range(20):
        assert [n for lane_index, n in seen if lane_index == index] == list(range(50))


@pytest.mark.parametrize("room", [0, 1, 3])
def test_what_comes_together_fills_the_lane(workers, room):
    """Of items that come together, as many are queued as there is room for, in order."""
    blocked, go_on, done = Lane(max_items=room + 1), threading.Event(), threading.Event()
    there, seen = threading.Event(), []
    blocked.post(lambda: (there.set(), go_on.wait(LIMIT)), workers)
    assert there.wait(LIMIT)
    blocked.post(lambda: None, workers)
    with pytest.raises(LaneOverflow):
        blocked.post_all([(lambda item: seen.append(item[1]), n, 1) for n in range(room + 2)], workers, room + 2)
    assert (len(blocked), blocked.bytes_queued) == (room + 1, room)
    blocked.post(done.set, workers, force=True)
    go_on.set()
    assert done.wait(LIMIT)
    assert seen == list(range(room))
    assert blocked.bytes_queued == 0


def test_what_of_it_had_room_runs_at_once(workers):
    """Items that came together and were too many for the lane: those that were queued wait for no further post."""
    lane, seen = Lane(max_items=3), threading.Semaphore(0)
    with pytest.raises(LaneOverflow):
        lane.post_all([(lambda item: seen.release(), 0)] * 5, workers, 0)
    for _ in range(3):
        assert seen.acquire(timeout=LIMIT)
    drained(lane, workers)
    assert not seen.acquire(blocking=False)
