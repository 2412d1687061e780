"""Work at given times, such as sending an audio frame every 20 ms."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
from collections.abc import Callable

from .clock import monotonic
from .deadline import Deadline, join_thread
from .latch import Notifier
from .lifecycle import fork_generation, start_thread
from .lock import new_lock
from .logs import package_logger

logger: logging.Logger = package_logger(__name__)

# The timeout of a lock (Windows: 49 days) and of epoll (24 days) is limited, so a thread that waits until a given time
# wakes at least every hour.
LONGEST_WAIT = 3600.0
# `cancel()` waits up to this many seconds for a step that hangs.
_STEP_LIMIT = 0.5
# A step that is due within this many seconds runs at once: Linux lets a thread oversleep by that much, and the rounding
# errors of due times are smaller.
_EARLY = 50e-6
_BEATS_PER_SECOND = 200
# `run_due()` makes at most this many steps, of about 40 microseconds each. Messages that arrive wait for all of them.
_MAX_BATCH = 8

Step = Callable[[float], "float | None"]


def _wait(notifier: Notifier, ready: Callable[[], bool], timeout: float | None) -> None:
    notifier.wait_for(ready, Deadline(timeout))


class ScheduledTask:
    """A step function of a `Scheduler`; made by `Scheduler.add()`."""

    def __init__(self, scheduler: Scheduler, step: Step) -> None:
        self._scheduler = scheduler
        # Both are guarded by the scheduler's lock. The step is None once the task is done or cancelled. The due time is
        # None while the step runs or is about to run. A heap entry with another due time is stale.
        self._step: Step | None = step
        self._due: float | None = math.inf

    def cancel(self) -> None:
        """End the task: when this returns, its step does not run and never runs again.

        It waits for a step in progress, which is short because steps never block (up to `_STEP_LIMIT` for a step that
        does). Call it without holding a lock that the step acquires. Called on the thread that makes the steps, as in a
        step, it does not wait. May be called on any thread. Idempotent.
        """
        self._scheduler._cancel(self)

    def reschedule(self, due: float) -> None:
        """Set the time of the next call to `due`, which replaces the planned time and resumes a parked task.

        It overrides the result of a step in progress. Does nothing once the task is done or cancelled.
        May be called on any thread.

        Args:
            due: absolute time in seconds on the scheduler's clock; `math.inf` parks the task.
        """
        self._scheduler._reschedule(self, due)


class Scheduler:
    """Step functions and their due times, for a thread that calls `run_due()`.

    Due times are absolute, so that delays do not accumulate: a step that returns its previous due time + 0.02 is called
    50 times a second even if single calls are late. After a stall the overdue steps run one after the other, the one
    with the earliest due time first.

    Args:
        wake: makes that thread read `next_due`, which has become earlier. Called on any thread.
        runs_here: returns True on that thread.
        clock: current time in seconds; never goes back.
    """

    def __init__(
        self,
        wake: Callable[[], object],
        runs_here: Callable[[], bool],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._runs_here = runs_here
        # Guards every field below and the fields of all tasks. Any thread may hold it, for a few instructions, and no
        # thread while a step runs. Re-entrant, because a finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._step_returned = Notifier()  # cancel() waits here for the step in progress
        self._changed = False  # next_due is earlier than the thread knows
        #: When to call `run_due()`; `math.inf`: no step is planned.
        self.next_due: float = math.inf
        self._heap: list[tuple[float, int, ScheduledTask]] = []
        self._order = itertools.count()
        self._current: ScheduledTask | None = None
        self._closed = False

    def now(self) -> float:
        """Return the seconds of the clock of due times: the package's clock, except in tests."""
        return self._clock()

    def beat(self) -> float:
        """Return the next multiple of 5 ms on the clock, at which the steps of many tasks can run together.

        A thousand sources that each send every 20 ms, from such a time on, wake the thread 200 times a second and not
        50,000 times.
        """
        return math.ceil(self._clock() * _BEATS_PER_SECOND) / _BEATS_PER_SECOND

    def add(self, step: Step, first: float) -> ScheduledTask:
        """Call `step(now)` at the time `first`, and again at each time that it returns.

        `step` runs on the scheduler's thread. It must not block or run the application's code. It returns the absolute
        time of its next call, `math.inf` to be parked until `ScheduledTask.reschedule()`, or None when it is done. An
        exception in it is logged and ends this task only. May be called on any thread, and in a step.

        Args:
            step: takes the current time in seconds on the scheduler's clock.
            first: absolute time in seconds; `math.inf`: parked from the start.

        Raises:
            RuntimeError: the scheduler is closed.
        """
        task = ScheduledTask(self, step)
        if self._closed:
            raise RuntimeError("The scheduler is closed. Add the step to a new one")
        self._reschedule(task, first)
        return task

    def close(self) -> None:
        """Drop all tasks and refuse new ones. Does not wait."""
        with self._lock:
            self._closed = self._changed = True
            self._heap.clear()
            self.next_due = math.inf

    @property
    def wants_run(self) -> bool:
        """True if a step is due, or planned earlier than the thread knows: the thread also wakes for other work.

        The result may be True without need, as after `cancel()`.
        """
        return self._changed or self.next_due <= self._clock() + _EARLY

    def run_due(self) -> None:
        """Make the steps that are due, up to `_MAX_BATCH`."""
        heap = self._heap
        tasks: list[ScheduledTask] = []
        with self._lock:
            soon = self._clock() + _EARLY
            while heap and heap[0][0] <= soon and len(tasks) < _MAX_BATCH:
                due, _, task = heapq.heappop(heap)
                if task._due == due and task._step is not None:  # else the entry is stale
                    task._due = None
                    tasks.append(task)
        for task in tasks:
            self._run_step(task)
        self._step_returned.notify_all()
        with self._lock:
            self._changed = self._closed
            while heap and (heap[0][2]._due != heap[0][0] or heap[0][2]._step is None):  # stale
                heapq.heappop(heap)
            self.next_due = heap[0][0] if heap else math.inf

    def _run_step(self, task: ScheduledTask) -> None:
        """Make one step, and plan the next one."""
        self._current = task  # before the next line, because cancel() uses them in the other order
        step = task._step
        if step is not None and task._due is None and not self._closed:  # else cancelled or rescheduled
            try:
                due = step(self._clock())
            except BaseException:  # SystemExit, too, because others use the thread
                logger.exception("A scheduled step failed; its task has ended")
                task.cancel()
            else:
                with self._lock:
                    if task._due is None and task._step is not None:  # not cancelled or rescheduled by the step
                        if due is None:
                            task._step = None
                        else:
                            self._plan(task, due)
        self._current = None

    def _cancel(self, task: ScheduledTask) -> None:
        with self._lock:
            task._step = None
        if not self._runs_here():
            self._step_returned.wait_for(lambda: self._current is not task, Deadline(_STEP_LIMIT))

    def _reschedule(self, task: ScheduledTask, due: float) -> None:
        with self._lock:
            if task._step is not None and not self._closed:
                self._plan(task, due)
        if self._changed and not self._runs_here():
            self._wake()

    def _plan(self, task: ScheduledTask, due: float) -> None:
        """Set a task's due time. The caller holds the lock."""
        task._due = due
        if due < math.inf:
            entry = (due, next(self._order), task)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed, self.next_due = True, due


class TimerThread(Scheduler):
    """A scheduler with its own thread, which starts with the first `add()`.

    Args:
        clock: as for `Scheduler`.
        wait: `wait(notifier, ready, timeout)` blocks on the notifier until `ready()`, up to `timeout` seconds (None: no
            limit). `clock` and `wait` are parameters for tests.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = monotonic,
        wait: Callable[[Notifier, Callable[[], bool], float | None], object] = _wait,
    ) -> None:
        # The thread sleeps here until a step is due, or planned earlier.
        self._plan_changed = Notifier()
        super().__init__(self._plan_changed.notify_all, lambda: threading.current_thread() is self._thread, clock)
        self._wait = wait
        # Guarded by the lock of the scheduler. join() waits on the notifier of cancel() until the thread is known.
        self._begun = False
        self._thread: threading.Thread | None = None

    def add(self, step: Step, first: float) -> ScheduledTask:
        """Add a step as `Scheduler.add()` does, and start the thread."""
        with self._lock:
            begin, self._begun = not (self._begun or self._closed), self._begun or not self._closed
        if begin:
            self._begin()
        return super().add(step, first)

    def close(self) -> None:
        """Drop all tasks, refuse new ones and end the thread. Does not wait."""
        super().close()
        self._plan_changed.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the thread has ended after `close()`.

        Returns:
            True if there is no thread; False if it is alive, or if this is that thread.
        """
        deadline = Deadline(timeout)
        if not self._step_returned.wait_for(lambda: self._thread is not None or not self._begun, deadline):
            return False
        thread = self._thread
        return thread is None or (thread is not threading.current_thread() and join_thread(thread, deadline))

    def _begin(self) -> None:
        thread = None
        try:
            thread = start_thread("timer", self._run)
        finally:
            with self._lock:
                self._thread = thread
                self._begun = thread is not None
            self._step_returned.notify_all()

    def _run(self) -> None:
        generation = fork_generation()
        # A greenlet is copied to a forked child and ends there, because the steps are the parent's.
        while not self._closed and fork_generation() == generation:
            self.run_due()
            remaining = self.next_due - self._clock()
            if remaining > _EARLY:
                timeout = None if remaining == math.inf else min(remaining, LONGEST_WAIT)
                self._wait(self._plan_changed, lambda: self._changed, timeout)
