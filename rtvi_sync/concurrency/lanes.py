"""Serial queues that shared workers drain.

A *lane* keeps the order of one client's events. Few workers serve many lanes: one is woken or started only when a
lane has something to do and nobody drains it, so that 500 quiet clients need no thread, and a handler that blocks
holds up its own lane only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from .deadline import Deadline, slice_of, wait_for_lock
from .lifecycle import fork_generation, start_thread

logger = logging.getLogger(__name__)

# An idle worker leaves after this many seconds; starting one costs about 100 microseconds.
IDLE_TIMEOUT = 5.0


class LaneOverflow(Exception):  # noqa: N818 - a signal to the poster, not an error that a user sees
    """The lane is full; the item was not queued."""


class Lane:
    """A serial queue of functions to call. They run in order, one at a time, never on two threads at once.

    Args:
        max_items: how many items may wait.
        max_bytes: how many bytes, by the sizes that `post()` is told, may wait.
        manual: nobody drains the lane but `run_queued()`.
    """

    def __init__(self, *, max_items: int = 100_000, max_bytes: int = 64 * 1024 * 1024, manual: bool = False) -> None:
        # Guards everything below. Any thread may hold it, for a few assignments.
        self._lock = threading.Lock()
        self._items: deque[tuple[Callable[[], object], int]] = deque()
        self._bytes = 0
        self._running_on: int | None = None  # identity of the thread that drains the lane
        self._scheduled = False  # a worker was asked to drain the lane, or is at it
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.manual = manual
        # Notified when an item comes and when nobody drains the lane any more, for run_queued().
        self._arrival = threading.Condition(self._lock)

    def post(
        self,
        item: Callable[[], object] | None,
        workers: LaneWorkers,
        size: int = 0,
        *,
        force: bool = False,
        when: Callable[[], bool] | None = None,
    ) -> bool:
        """Queue `item`; `workers` provides the thread that calls it. Never blocks.

        Args:
            item: called with nothing; what it raises is logged. None queues nothing (with `when`: only decide).
            workers: where a thread is found if nobody drains the lane now.
            size: bytes that the item holds.
            force: queue it even when the lane is full (for the last events of a session).
            when: called under the lane's lock, so that what it decides and the place of the item in the queue are one
                step. It may only read and assign; if it returns False nothing is queued.

        Returns:
            False if `when` said no.

        Raises:
            LaneOverflow: the lane is full.
        """
        with self._lock:
            if when is not None and not when():
                return False
            if item is None:
                return True
            if not force and (len(self._items) >= self._max_items or self._bytes + size > self._max_bytes):
                raise LaneOverflow
            self._items.append((item, size))
            self._bytes += size
            self._arrival.notify_all()
            if self._scheduled or self.manual:
                return True
            self._scheduled = True
        workers.submit(self)
        return True

    @property
    def is_current(self) -> bool:
        """True on the thread that runs an item of this lane right now."""
        return self._running_on == threading.get_ident()

    def __len__(self) -> int:
        return len(self._items)

    def drain(self) -> None:
        """Run what is queued until nothing is left. Called by the worker that the lane was submitted to."""
        more = True
        while more:
            try:
                more = self._run_one()
            except BaseException:
                # An exit or the like: on a thread that serves other lanes too it ends nothing.
                logger.exception("An item of an event lane tried to end its thread")

    def release(self) -> None:
        """Nobody drains the lane any more: the next `post()` finds somebody, or `run_queued()` takes over."""
        with self._lock:
            self._scheduled = False
            self._arrival.notify_all()

    def run_queued(self, deadline: Deadline, until: Callable[[], bool] | None = None) -> int:
        """Wait until `deadline` for a first item, then run what is queued, on this thread. Returns how many ran.

        One thread runs at a time; another one that calls meanwhile waits for its turn.

        Args:
            deadline: limit of the wait for a first item.
            until: give up waiting when it is true. Called under the lane's lock: it may only read.
        """
        done, taken = 0, False
        # On a thread of the program's Ctrl-C may come anywhere: what is taken is given back all the same.
        try:
            with self._lock:
                while self._scheduled or not self._items:
                    remaining = deadline.remaining()
                    if remaining == 0.0 or (until is not None and until()):
                        return 0
                    self._arrival.wait(slice_of(remaining))
                taken = self._scheduled = True
                count = len(self._items)
            while done < count and self._run_one():
                done += 1
        finally:
            if taken:
                self.release()
        return done

    def wake(self) -> None:
        """Let `run_queued()` ask its `until` again."""
        with self._lock:
            self._arrival.notify_all()

    def _run_one(self) -> bool:
        with self._lock:
            if not self._items:
                self._scheduled = False
                self._arrival.notify_all()
                return False
            item, size = self._items.popleft()
            self._bytes -= size
        try:
            self._running_on = threading.get_ident()
            item()
        except Exception:
            logger.exception("An item of an event lane raised")
        finally:
            self._running_on = None
        return True

    def after_fork_in_child(self) -> None:
        """Start anew: whoever held the lock or drained the lane does not exist in this process."""
        self._lock = threading.Lock()
        self._arrival = threading.Condition(self._lock)
        self._items = deque()
        self._bytes = 0
        self._running_on = None
        self._scheduled = False


class _Worker:
    """A thread that drains one lane after the other."""

    __slots__ = ("gate", "lane", "thread")

    def __init__(self, lane: Lane) -> None:
        self.lane: Lane | None = lane
        # Not a mutex: held by the idle worker, released by whoever gives it work or sends it home.
        self.gate = threading.Lock()
        self.gate.acquire()
        self.thread: threading.Thread | None = None


class LaneWorkers:
    """The threads that drain lanes: as many as handlers are running at once."""

    def __init__(self) -> None:
        # Guards `_idle`, `_all` and `_closed`. Any thread may hold it, for a list operation.
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    def submit(self, lane: Lane) -> None:
        """Have `lane` drained by an idle worker, or by a new one; after `close()` too, that worker then leaves."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                worker.lane = lane
        if worker is not None:
            worker.gate.release()
            return
        worker = _Worker(lane)
        with self._lock:
            self._all.add(worker)
        try:
            worker.thread = start_thread("lane", self._run, worker)
        except RuntimeError:
            # The interpreter is shutting down and starts no more threads: the exit hook drains the lane itself.
            with self._lock:
                self._all.discard(worker)
            lane.release()

    def close(self) -> None:
        """Send idle workers home; busy ones leave when their lane is empty."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.gate.release()

    def threads(self) -> list[threading.Thread]:
        """The threads that have not left yet."""
        with self._lock:
            return [worker.thread for worker in self._all if worker.thread is not None]

    def _run(self, worker: _Worker) -> None:
        generation = fork_generation()
        while worker.lane is not None:
            worker.lane.drain()
            if fork_generation() != generation:
                return  # a handler forked and returned: this is its child's only thread, and nobody's worker
            with self._lock:
                worker.lane = None
                if self._closed:
                    self._all.discard(worker)
                    return
                self._idle.append(worker)
            if not wait_for_lock(worker.gate, Deadline(IDLE_TIMEOUT)):
                with self._lock:
                    if worker in self._idle:
                        self._idle.remove(worker)
                        self._all.discard(worker)
                        return
                # Work was handed over in the very moment: the gate is about to open.
                worker.gate.acquire()
        with self._lock:
            self._all.discard(worker)
