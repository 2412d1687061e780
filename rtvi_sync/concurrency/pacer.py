"""One thread for all work that must happen at given times, such as sending a chunk of audio every 20 ms."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable

from .deadline import Deadline, join_thread
from .gate import Bell
from .lifecycle import fork_generation, start_thread

logger: logging.Logger = logging.getLogger(__name__)

# The time-out of a lock is limited (Windows: 49 days), so what is due later costs an idle wake-up an hour.
_LONGEST_WAIT = 3600.0

Step = Callable[[float], "float | None"]


def _wait(bell: Bell, ready: Callable[[], bool], timeout: float | None) -> None:
    bell.wait_for(ready, Deadline(timeout))


class PacerTask:
    """One step function on a `Pacer`; made by `Pacer.add()`."""

    def __init__(self, pacer: Pacer, step: Step) -> None:
        self._pacer = pacer
        # Both are guarded by the pacer's lock. The step is None once the task is done or cancelled; the due time is
        # None while the step runs, and a heap entry with another due time is stale.
        self._step: Step | None = step
        self._due: float | None = math.inf

    def cancel(self) -> None:
        """End the task: after this returns its step is not running and never will again.

        Waits for a step in progress, which is short because steps never block; call it without holding a lock that
        the step takes. Called from a step, that is on the pacer's own thread, it does not wait. May be called from
        any thread and any number of times.
        """
        self._pacer._cancel(self)

    def reschedule(self, due: float) -> None:
        """Set the next call to `due`, whatever was planned; wakes a parked task.

        Wins over what a step in progress is about to return. Does nothing once the task is done or cancelled.
        May be called from any thread.

        Args:
            due: absolute time in seconds on the pacer's clock; `math.inf` parks the task.
        """
        self._pacer._reschedule(self, due)


class Pacer:
    """Calls step functions at absolute times on one thread, which begins with the first `add()`.

    Due times are absolute, so that lateness never adds up: a step that returns its previous due time + 0.02 is called
    50 times a second however late single calls are. After a stall the steps that have become due run one after the
    other, the longest overdue first.

    Args:
        clock: current time in seconds; never goes back.
        wait: `wait(bell, ready, timeout)` sleeps at the bell until `ready()`, at most `timeout` seconds (None: without
            limit). It and `clock` are parameters for the sake of tests.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Bell, Callable[[], bool], float | None], object] = _wait,
    ) -> None:
        self._clock = clock
        self._wait = wait
        # Guards every field below and the fields of all tasks. Any thread may hold it, for a few instructions; nobody
        # holds it while a step runs. Re-entrant, because a finalizer may come in between.
        self._lock = threading.RLock()
        # The pacer's thread sleeps at the first until something is due sooner than planned; cancel() and join() sleep
        # at the second until the step in progress has returned, the thread is known.
        self._sooner = Bell()
        self._settled = Bell()
        self._changed = False  # something is due sooner than the pacer's thread knows
        self._heap: list[tuple[float, int, PacerTask]] = []
        self._order = itertools.count()
        self._current: PacerTask | None = None
        self._begun = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def now(self) -> float:
        """Seconds on the clock that due times refer to (`time.monotonic()` outside of tests)."""
        return self._clock()

    def add(self, step: Step, first: float) -> PacerTask:
        """Call `step(now)` at the time `first`, and again at each time that it returns.

        `step` runs on the pacer's thread and must neither block nor run code of the user. It returns the absolute
        time of its next call, `math.inf` to be parked until `PacerTask.reschedule()`, or None when it is done. An
        exception in it is logged and ends this task only. May be called from any thread, steps included.

        Args:
            step: takes the current time in seconds on the pacer's clock.
            first: absolute time in seconds; `math.inf`: parked from the start.

        Raises:
            RuntimeError: the pacer is closed.
        """
        task = PacerTask(self, step)
        with self._lock:
            if self._closed:
                raise RuntimeError("this pacer is closed: new work belongs on a new one")
            begin, self._begun = not self._begun, True
        if begin:
            self._begin()
        self._reschedule(task, first)
        return task

    def close(self) -> None:
        """Take no new work and let the thread leave; what is still planned is dropped. Does not wait."""
        with self._lock:
            self._closed = self._changed = True
            self._heap.clear()
        self._sooner.ring()

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
            thread = start_thread("pacer", self._run)
        finally:
            with self._lock:
                self._thread = thread
                self._begun = thread is not None
            self._settled.ring()

    def _run(self) -> None:
        due: float | None = None
        generation = fork_generation()
        while (ready := self._next(due)) is not None:
            if fork_generation() != generation:
                return  # a copy, in a child, of a greenlet: what there is to do is the parent's
            task, step = ready
            try:
                due = step(self._clock())
            except BaseException:
                logger.exception("A paced step failed; its task has ended")
                task.cancel()

    def _next(self, due: float | None) -> tuple[PacerTask, Step] | None:
        """Plan the task whose step has returned `due`, then wait until a task is due; None: the pacer is closed."""
        with self._lock:
            self._put_back(due)
        self._settled.ring()
        while True:
            with self._lock:
                if self._closed:
                    return None
                self._changed = False
                timeout = None
                if self._heap:
                    planned, _, task = self._heap[0]
                    step = task._step if task._due == planned else None
                    timeout = planned - self._clock()
                    if step is None or timeout <= 0:
                        heapq.heappop(self._heap)
                    if step is None:
                        continue
                    if timeout <= 0:
                        task._due, self._current = None, task
                        return task, step
                    timeout = min(timeout, _LONGEST_WAIT)
            self._wait(self._sooner, lambda: self._changed, timeout)

    def _put_back(self, due: float | None) -> None:
        """Plan the current task anew unless it was rescheduled meanwhile; the lock is held."""
        task, self._current = self._current, None
        if task is None:
            return
        if task._step is not None and task._due is None:
            if due is None:
                task._step = None
            else:
                self._plan(task, due)

    def _cancel(self, task: PacerTask) -> None:
        with self._lock:
            task._step = None
        if threading.current_thread() is not self._thread:
            self._settled.wait_for(lambda: self._current is not task, Deadline(None))

    def _reschedule(self, task: PacerTask, due: float) -> None:
        with self._lock:
            if task._step is not None and not self._closed:
                self._plan(task, due)
        if self._changed:
            self._sooner.ring()

    def _plan(self, task: PacerTask, due: float) -> None:
        """Set a task's due time; the lock is held."""
        task._due = due
        if due < math.inf:
            entry = (due, next(self._order), task)
            heapq.heappush(self._heap, entry)
            self._changed = self._changed or self._heap[0] is entry
