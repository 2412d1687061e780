"""The timer thread: absolute due times on one thread, in manual time and once in real time."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.latch import Notifier
from rtvi_sync.concurrency.timer_thread import ScheduledTask, TimerThread
from tests.support.slowness import GUARD, takes

pytestmark = pytest.mark.inside


class ManualClock:
    """Time that moves only in `advance()`, which returns once the timer thread has run the due steps and sleeps
    again.
    """

    def __init__(self) -> None:
        self.time = 1000.0
        self.lateness = 0.0  # how much later than asked for the timer thread wakes
        self.waits = 0
        self.woken = 0  # how many of them wake() has ended
        self.notifier = Notifier()
        self.until = math.inf
        self._slept = threading.Condition()

    def now(self) -> float:
        return self.time

    def wait(self, notifier: Notifier, ready: Callable[[], bool], timeout: float | None) -> None:
        with self._slept:
            self.waits += 1
            number = self.waits
            self.notifier = notifier
            self.until = math.inf if timeout is None else self.time + timeout
            self._slept.notify_all()
        notifier.wait_for(lambda: ready() or self.woken >= number, Deadline(None))

    def wake(self, time: float) -> None:
        """Wake the timer thread at that time and wait until it sleeps again, having seen all that was added before."""
        with self._slept:
            assert self._slept.wait_for(lambda: self.waits > 0, GUARD), "the timer thread never slept"
            before = self.woken = self.waits
            self.time = time
        self.notifier.notify_all()
        with self._slept:
            assert self._slept.wait_for(lambda: self.waits > before, GUARD), "the timer thread does not sleep"

    def advance(self, seconds: float) -> None:
        target = self.time + seconds
        self.wake(self.time)
        while self.until <= target:
            self.wake(self.until + self.lateness)
        self.time = max(self.time, target)


@pytest.fixture
def clock():
    """Make a manual clock."""
    return ManualClock()


@pytest.fixture
def timer(clock):
    """Make a timer thread on the manual clock; its thread must have ended after the test."""
    timer = TimerThread(clock=clock.now, wait=clock.wait)
    yield timer
    timer.close()
    assert timer.join(GUARD)


def timer_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("rtvi-timer")]


def every(interval: float, first: float, calls: list[float]):
    due = first

    def step(now: float) -> float:
        nonlocal due
        calls.append(now)
        due += interval
        return due

    return step


def test_steps_run_at_their_absolute_times(clock, timer):
    """60 s of 20 ms steps end where they should although each wakes 3 ms late: lateness never adds up."""
    clock.lateness = 0.003
    calls: list[float] = []
    start = clock.now()
    timer.add(every(0.02, start, calls), start)
    clock.advance(60.0)
    assert len(calls) == 3001
    assert all(abs(now - (start + i * 0.02)) < 0.005 for i, now in enumerate(calls))


def test_a_stalled_timer_catches_up(clock, timer):
    """Steps that became due in a stall of 1 s run at once, and the timer thread then sleeps until the next due time."""
    calls: list[float] = []
    start = clock.now()
    timer.add(every(0.02, start, calls), start)
    clock.advance(0.05)
    clock.lateness = 1.0
    clock.advance(0.02)
    clock.lateness = 0.0
    assert len(calls) == 54
    assert calls[3:] == [calls[3]] * 51
    assert clock.until == pytest.approx(start + 54 * 0.02)


def test_it_sleeps_once_per_due_time(clock, timer):
    """Between two due times the thread sleeps exactly once: there is no busy loop."""
    start = clock.now()
    timer.add(every(0.02, start, []), start)
    clock.advance(0.01)
    before = clock.waits
    clock.advance(2.0)
    assert clock.waits - before == 1 + 100  # advance() itself wakes it once


def test_tasks_run_in_the_order_of_their_due_times(clock, timer):
    """Steps of several tasks interleave by due time."""
    order: list[str] = []
    start = clock.now()
    for name, delay in (("c", 0.03), ("a", 0.01), ("b", 0.02)):
        timer.add(lambda now, name=name: order.append(name), start + delay)
    clock.advance(0.1)
    assert order == ["a", "b", "c"]


def test_a_sooner_task_shortens_the_sleep(clock, timer):
    """A task that is due before the one the timer thread sleeps for runs at its own time."""
    calls: list[float] = []
    start = clock.now()
    timer.add(lambda now: calls.append(now), start + 10)
    clock.advance(0.5)
    assert clock.until == start + 10
    timer.add(lambda now: calls.append(now), start + 1)
    clock.advance(1.0)
    assert calls == [start + 1]


def test_none_ends_a_task(clock, timer):
    """A step that returns None is not called again, and rescheduling it does nothing."""
    calls: list[float] = []
    task = timer.add(lambda now: calls.append(now), clock.now())
    clock.advance(1.0)
    task.reschedule(clock.now())
    clock.advance(1.0)
    assert len(calls) == 1


def test_a_parked_task_waits_for_reschedule(clock, timer):
    """A step that returns inf is called again only after `reschedule()`, also from the start."""
    calls: list[float] = []

    def step(now: float) -> float:
        calls.append(now)
        return math.inf

    task = timer.add(step, math.inf)
    clock.advance(100.0)
    assert calls == []
    start = clock.now()
    task.reschedule(start + 5)
    clock.advance(100.0)
    assert calls == [start + 5]
    task.reschedule(math.inf)
    clock.advance(100.0)
    assert calls == [start + 5]


def test_reschedule_replaces_the_planned_call(clock, timer):
    """A rescheduled task runs at the new time only, be it later than the old one."""
    calls: list[float] = []
    start = clock.now()
    task = timer.add(lambda now: calls.append(now), start + 1)
    task.reschedule(start + 3)
    clock.advance(2.0)
    assert calls == []
    clock.advance(2.0)
    assert calls == [start + 3]


def test_reschedule_inside_the_step_wins(clock, timer):
    """The time given to reschedule() while the step ran counts, not the one that the step returned."""
    calls: list[float] = []
    tasks: list[ScheduledTask] = []

    def step(now: float) -> float | None:
        calls.append(now)
        if len(calls) == 1:
            tasks[0].reschedule(start + 5)
            return math.inf
        return None

    start = clock.now()
    tasks.append(timer.add(step, math.inf))
    tasks[0].reschedule(start)
    clock.advance(10.0)
    assert calls == [start, start + 5]


def test_an_exception_ends_its_task_only(clock, timer, caplog):
    """A step that raises is logged with its stack and never called again; other tasks go on."""
    calls: list[float] = []
    start = clock.now()

    def broken(now: float) -> float:
        raise ValueError("broken step")

    timer.add(every(0.02, start, calls), start)
    with caplog.at_level(logging.ERROR):
        timer.add(broken, start)
        clock.advance(1.0)
    assert len(calls) == 51
    assert [record.exc_info[1].args for record in caplog.records] == [("broken step",)]


def test_cancel_waits_for_the_step_in_progress():
    """When cancel() has returned the step is over and is not called again."""
    entered, leave, cancelled = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    def step(now: float) -> float:
        calls.append("begin")
        entered.set()
        leave.wait(GUARD)
        calls.append("end")
        return now

    def cancel() -> None:
        task.cancel()
        calls.append("cancelled")
        cancelled.set()

    timer = TimerThread()
    task = timer.add(step, timer.now())
    assert entered.wait(GUARD)
    threading.Thread(target=cancel, daemon=True).start()
    assert not cancelled.wait(0.05)
    leave.set()
    assert cancelled.wait(GUARD)
    timer.close()
    assert timer.join(GUARD)
    assert calls == ["begin", "end", "cancelled"]


def test_a_step_may_cancel_its_own_task(clock, timer):
    """cancel() on the timer thread's own thread returns at once, and the step is the last one."""
    calls: list[float] = []
    tasks: list[ScheduledTask] = []

    def step(now: float) -> float:
        calls.append(now)
        tasks[0].cancel()
        return now

    tasks.append(timer.add(step, math.inf))
    tasks[0].reschedule(clock.now())
    clock.advance(1.0)
    assert len(calls) == 1


def test_cancel_is_idempotent_and_silences_a_planned_call(clock, timer):
    """A cancelled task is never called, however often it is cancelled or rescheduled."""
    calls: list[float] = []
    task = timer.add(lambda now: calls.append(now), clock.now() + 1)
    task.cancel()
    task.cancel()
    task.reschedule(clock.now())
    clock.advance(5.0)
    assert calls == []


def test_the_thread_lives_from_the_first_add_to_close():
    """No thread before the first add(), one for many tasks, none after close() and join()."""
    before = len(timer_threads())
    timer = TimerThread()
    assert len(timer_threads()) == before
    assert timer.join(0)
    for _ in range(20):
        timer.add(lambda now: now + 3600, timer.now() + 3600)
    assert len(timer_threads()) == before + 1
    assert not timer.join(0)
    timer.close()
    assert timer.join(GUARD)
    assert len(timer_threads()) == before


def test_concurrent_first_adds_start_one_thread():
    """Many threads that add at once share one timer thread thread and all their steps run."""
    before = len(timer_threads())
    timer = TimerThread()
    barrier = threading.Barrier(8)
    done = [threading.Event() for _ in range(8)]

    def add(event: threading.Event) -> None:
        barrier.wait(GUARD)
        timer.add(lambda now: event.set(), timer.now())

    adders = [threading.Thread(target=add, args=(event,)) for event in done]
    for thread in adders:
        thread.start()
    for thread in adders:
        thread.join(GUARD)
    assert all(event.wait(GUARD) for event in done)
    assert len(timer_threads()) == before + 1
    timer.close()
    assert timer.join(GUARD)


def test_a_closed_timer_takes_no_work(clock):
    """add() after close() raises, and planned steps are dropped."""
    calls: list[float] = []
    timer = TimerThread(clock=clock.now, wait=clock.wait)
    task = timer.add(lambda now: calls.append(now), clock.now() + 1)
    timer.close()
    assert timer.join(GUARD)
    task.reschedule(clock.now())
    task.cancel()
    with pytest.raises(RuntimeError, match="closed"):
        timer.add(lambda now: None, clock.now())
    assert calls == []


def test_close_and_join_on_the_timer_thread_return():
    """A step may close its timer thread; join() there says that the thread is still alive."""
    timer = TimerThread()
    answers: list[bool] = []

    def step(now: float) -> None:
        timer.close()
        answers.append(timer.join(GUARD))

    timer.add(step, timer.now())
    assert timer.join(GUARD)
    assert answers == [False]


def test_a_thread_that_cannot_start_leaves_a_working_timer(monkeypatch):
    """If the first thread fails to start, add() raises and the next add() tries again."""
    from rtvi_sync.concurrency import timer_thread as module

    def refuse(role, target, *args):
        raise RuntimeError("can't start new thread")

    timer = TimerThread()
    with monkeypatch.context() as patch:
        patch.setattr(module, "start_thread", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            timer.add(lambda now: None, timer.now())
    assert timer.join(0)
    ran = threading.Event()
    timer.add(lambda now: ran.set(), timer.now())
    assert ran.wait(GUARD)
    timer.close()
    assert timer.join(GUARD)


def test_real_time():
    """100 steps of 20 ms on the real clock take 1.98 s and little more, and none runs before its time."""
    timer = TimerThread()
    done = threading.Event()
    calls: list[float] = []
    start = time.monotonic() + 0.05

    def step(now: float) -> float | None:
        calls.append(now)
        if len(calls) == 100:
            done.set()
            return None
        return start + len(calls) * 0.02

    with takes(2.2):
        timer.add(step, start)
        assert done.wait(GUARD)
    timer.close()
    assert timer.join(GUARD)
    assert all(now >= start + i * 0.02 for i, now in enumerate(calls))
