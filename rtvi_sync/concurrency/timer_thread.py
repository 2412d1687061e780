"""Work that must happen at given times, such as sending a chunk of audio every 20 ms."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable

from .deadline import Deadline, join_thread
from .latch import Notifier
from .lifecycle import fork_generation, start_thread

logger: logging.Logger = logging.getLogger(__name__)

# The time-out of a lock is limited (Windows: 49 days), so what is due later costs an idle wake-up an hour.
_LONGEST_WAIT = 3600.0
# A step that runs for longer hangs: whoever cancels it goes on.
_STEP_LIMIT = 0.5
# What is due within so many seconds runs at once: Linux lets a thread sleep for that much longer than it asks for, and
# a due time that is computed in two ways differs by less.
_EARLY = 50e-6
_BEATS_PER_SECOND = 200
# After so many steps the thread may see to something else.
_CROWD = 32

Step = Callable[[float], "float | None"]


def _wait(notifier: Notifier, ready: Callable[[], bool], timeout: float | None) -> None:
    notifier.wait_for(ready, Deadline(timeout))


class PacerTask:
    """One step function of a `Scheduler`; made by `Scheduler.add()`."""

    def __init__(self, schedule: Scheduler, step: Step) -> None:
        self._schedule = schedule
        # Both are guarded by the schedule's lock. The step is None once the task is done or cancelled; the due time is
        # None while the step runs or is about to, and a heap entry with another due time is stale.
        self._step: Step | None = step
        self._due: float | None = math.inf

    def cancel(self) -> None:
        """End the task: after this returns its step is not running and never will again.

        Waits for a step in progress, which is short because steps never block (one that does, for half a second all the
        same, is given up); call it without holding a lock that the step takes. Called from a step, or else on the
        thread that makes the steps, it does not wait. May be called from any thread and any number of times.
        """
        self._schedule._cancel(self)

    def reschedule(self, due: float) -> None:
        """Set the next call to `due`, whatever was planned; wakes a parked task.

        Wins over what a step in progress is about to return. Does nothing once the task is done or cancelled.
        May be called from any thread.

        Args:
            due: absolute time in seconds on the schedule's clock; `math.inf` parks the task.
        """
        self._schedule._reschedule(self, due)


class Scheduler:
    """Step functions and the times at which a thread, which calls `run_due()`, is to call them.

    Due times are absolute, so that lateness never adds up: a step that returns its previous due time + 0.02 is called
    50 times a second however late single calls are. After a stall the steps that have become due run one after the
    other, the longest overdue first.

    Args:
        wake: has that thread look at `next_due`, which is sooner now. Called on any thread.
        runs_here: whether the calling thread is that thread.
        clock: current time in seconds; never goes back.
    """

    def __init__(
        self,
        wake: Callable[[], object],
        runs_here: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._runs_here = runs_here
        # Guards every field below and the fields of all tasks. Any thread may hold it, for a few instructions; nobody
        # holds it while a step runs. Re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        self._settled = Notifier()  # cancel() sleeps here until the step in progress has returned
        self._changed = False  # something is due sooner than the thread knows
        #: When to call `run_due()`; `math.inf`: not before something is planned.
        self.next_due: float = math.inf
        self._heap: list[tuple[float, int, PacerTask]] = []
        self._order = itertools.count()
        self._current: PacerTask | None = None
        self._closed = False

    def now(self) -> float:
        """Seconds on the clock that due times refer to (`time.monotonic()` outside of tests)."""
        return self._clock()

    def beat(self) -> float:
        """The next of 200 moments a second at which steps that are many begin together, in seconds on the clock.

        A thousand sources that each send every 20 ms, and began at such moments, wake the thread 200 times a second
        and not 50,000 times.
        """
        return math.ceil(self._clock() * _BEATS_PER_SECOND) / _BEATS_PER_SECOND

    def add(self, step: Step, first: float) -> PacerTask:
        """Call `step(now)` at the time `first`, and again at each time that it returns.

        `step` runs on the schedule's thread and must neither block nor run code of the user. It returns the absolute
        time of its next call, `math.inf` to be parked until `PacerTask.reschedule()`, or None when it is done. An
        exception in it is logged and ends this task only. May be called from any thread, steps included.

        Args:
            step: takes the current time in seconds on the schedule's clock.
            first: absolute time in seconds; `math.inf`: parked from the start.

        Raises:
            RuntimeError: it is closed.
        """
        task = PacerTask(self, step)
        if self._closed:
            raise RuntimeError("this schedule is closed: new work belongs on a new one")
        self._reschedule(task, first)
        return task

    def close(self) -> None:
        """Take no new work; what is still planned is dropped. Does not wait."""
        with self._lock:
            self._closed = self._changed = True
            self._heap.clear()
            self.next_due = math.inf

    def run_due(self) -> None:
        """Make the steps that are due, of a crowd the first ones."""
        for task in self._take_due():
            self._make(task)
        with self._lock:
            self._changed = self._closed
            self._forget_stale()
            self.next_due = self._heap[0][0] if self._heap else math.inf

    def _take_due(self) -> list[PacerTask]:
        heap = self._heap
        tasks: list[PacerTask] = []
        with self._lock:
            soon = self._clock() + _EARLY
            self._forget_stale()
            while heap and heap[0][0] <= soon and len(tasks) < _CROWD:
                task = heapq.heappop(heap)[2]
                task._due = None
                tasks.append(task)
                self._forget_stale()
        return tasks

    def _forget_stale(self) -> None:
        """Leave in front of the heap what is still planned; the lock is held."""
        heap = self._heap
        while heap and (heap[0][2]._due != heap[0][0] or heap[0][2]._step is None):
            heapq.heappop(heap)

    def _make(self, task: PacerTask) -> None:
        """Make one step, and plan the next."""
        self._current = task  # before the next line: cancel() looks at them the other way round
        step = task._step
        if step is not None and task._due is None and not self._closed:  # else it was cancelled or rescheduled
            try:
                due = step(self._clock())
            except BaseException:
                logger.exception("A paced step failed; its task has ended")
                task.cancel()
            else:
                with self._lock:
                    if task._due is None and task._step is not None:  # as before
                        if due is None:
                            task._step = None
                        else:
                            self._plan(task, due)
        self._current = None
        self._settled.notify_all()

    def _cancel(self, task: PacerTask) -> None:
        with self._lock:
            task._step = None
        if not self._runs_here():
            self._settled.wait_for(lambda: self._current is not task, Deadline(_STEP_LIMIT))

    def _reschedule(self, task: PacerTask, due: float) -> None:
        with self._lock:
            if task._step is not None and not self._closed:
                self._plan(task, due)
        if self._changed and not self._runs_here():
            self._wake()

    def _plan(self, task: PacerTask, due: float) -> None:
        """Set a task's due time; the lock is held."""
        task._due = due
        if due < math.inf:
            entry = (due, next(self._order), task)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                self._changed, self.next_due = True, due


class TimerThread(Scheduler):
    """A schedule with a thread of its own, which begins with the first `add()`.

    Args:
        clock: as of `Scheduler`.
        wait: `wait(notifier, ready, timeout)` sleeps at the notifier until `ready()`, at most `timeout` seconds (None:
            without
            limit). It and `clock` are parameters for the sake of tests.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Notifier, Callable[[], bool], float | None], object] = _wait,
    ) -> None:
        # The thread sleeps there until something is due sooner than planned.
        self._sooner = Notifier()
        super().__init__(self._sooner.notify_all, lambda: threading.current_thread() is self._thread, clock)
        self._wait = wait
        # Guarded by the same lock as all else. join() sleeps at the same notifier as cancel() until the thread is
        # known.
        self._begun = False
        self._thread: threading.Thread | None = None

    def add(self, step: Step, first: float) -> PacerTask:
        """As of `Scheduler`."""
        with self._lock:
            begin, self._begun = not (self._begun or self._closed), self._begun or not self._closed
        if begin:
            self._begin()
        return super().add(step, first)

    def close(self) -> None:
        """Take no new work and let the thread leave; what is still planned is dropped. Does not wait."""
        super().close()
        self._sooner.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait until the thread has left after `close()`.

        Args:
            timeout: limit in seconds.

        Returns:
            True if no thread is left; False if it is still there, or if this is that thread.
        """
        deadline = Deadline(timeout)
        if not self._settled.wait_for(lambda: self._thread is not None or not self._begun, deadline):
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
            self._settled.notify_all()

    def _run(self) -> None:
        generation = fork_generation()
        # In a child a copy, of a greenlet, ends: what there is to do is the parent's.
        while not self._closed and fork_generation() == generation:
            self.run_due()
            remaining = self.next_due - self._clock()
            if remaining > _EARLY:
                timeout = None if remaining == math.inf else min(remaining, _LONGEST_WAIT)
                self._wait(self._sooner, lambda: self._changed, timeout)
