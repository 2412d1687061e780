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

from .deadline import Deadline
from .gate import Bell
from .lifecycle import fork_generation, start_thread

logger: logging.Logger = logging.getLogger(__name__)

# An idle worker leaves after this many seconds; starting one costs about 100 microseconds.
IDLE_TIMEOUT = 5.0


class LaneOverflow(Exception):  # noqa: N818 - a signal to the poster, not an error that a user sees
    """The lane is full; the item was not queued."""


class _Turn:
    """The right to drain a lane. A call of `run_queued()` has one of its own; `thread` is None for a worker's."""

    __slots__ = ("thread",)

    def __init__(self, thread: int | None = None) -> None:
        self.thread = thread


class Lane:
    """A serial queue of functions to call. They run in order, one at a time, never on two threads at once.

    Args:
        max_items: how many items may wait.
        max_bytes: how many bytes, by the sizes that `post()` is told, may wait.
        manual: nobody drains the lane but `run_queued()`.
    """

    def __init__(self, *, max_items: int = 100_000, max_bytes: int = 64 * 1024 * 1024, manual: bool = False) -> None:
        # Held by those who post, for a few assignments, so that what `when` decides and the place in the queue are one
        # step. Any thread may be one; re-entrant, because a finalizer or signal handler may post in between. Whoever
        # takes from the queue does without.
        self._lock = threading.RLock()
        self._items: deque[tuple[Callable[[], object], int]] = deque()
        self._bytes_posted = 0
        self._bytes_taken = 0
        # Who drains the lane, under the key 0; empty if nobody does. Not an attribute, because `setdefault()` is one
        # step that no other thread and no signal handler can split.
        self._turns: dict[int, _Turn] = {}
        self._running_on: int | None = None  # identity of the thread that runs an item
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.manual = manual
        # Rung when an item comes and when nobody drains the lane any more, for run_queued().
        self._bell = Bell()

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
            queued_bytes = self._bytes_posted - self._bytes_taken
            if not force and (len(self._items) >= self._max_items or queued_bytes + size > self._max_bytes):
                raise LaneOverflow
            self._bytes_posted += size
            self._items.append((item, size))
        self._bell.ring()
        if not self.manual and self._take(_Turn()):
            workers.submit(self)
        return True

    @property
    def is_current(self) -> bool:
        """True on the thread that runs an item of this lane right now."""
        return self._running_on == threading.get_ident()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def bytes_queued(self) -> int:
        """What the queued items hold."""
        return self._bytes_posted - self._bytes_taken

    def drain(self) -> None:
        """Run what is queued until nothing is left. Called by the worker that the lane was submitted to."""
        more = True
        while more:
            try:
                while self._run_one():
                    pass
            except BaseException:
                # An exit or the like: on a thread that serves other lanes too it ends nothing.
                logger.exception("An item of an event lane tried to end its thread")
            else:
                self.release()
                # What came between the last look and the release found nobody to be asked.
                more = bool(self._items) and self._take(_Turn())

    def release(self) -> None:
        """Nobody drains the lane any more: the next `post()` finds somebody, or `run_queued()` takes over."""
        self._turns.clear()
        self._bell.ring()

    def run_queued(self, deadline: Deadline, until: Callable[[], bool] | None = None) -> int:
        """Wait until `deadline` for a first item, then run what is queued, on this thread. Returns how many ran.

        One thread runs at a time; another one that calls meanwhile waits for its turn.

        Args:
            deadline: limit of the wait for a first item.
            until: give up waiting when it is true.
        """
        turn, done = _Turn(threading.get_ident()), 0

        def ready() -> bool:
            return (bool(self._items) and self._take(turn)) or (until is not None and until())

        # On a thread of the program's Ctrl-C may come anywhere: the turn is given back all the same.
        try:
            self._bell.wait_for(ready, deadline)
            count = len(self._items)
            while done < count and self._turns.get(0) is turn and self._run_one():
                done += 1
        finally:
            if self._turns.get(0) is turn:
                self.release()
        return done

    def wake(self) -> None:
        """Let `run_queued()` ask its `until` again."""
        self._bell.ring()

    def _take(self, turn: _Turn) -> bool:
        """From now on `turn` drains the lane, unless another thread's does."""
        holder = self._turns.setdefault(0, turn)
        if holder is not turn and holder.thread == turn.thread is not None:
            # This thread is here already: a signal handler has interrupted it, or Ctrl-C kept it from giving its turn
            # back.
            self._turns[0] = holder = turn
        return holder is turn

    def _run_one(self) -> bool:
        try:
            item, size = self._items.popleft()
        except IndexError:
            return False
        self._bytes_taken += size
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
        self._lock = threading.RLock()
        self._items = deque()
        self._bytes_posted = self._bytes_taken = 0
        self._turns = {}
        self._running_on = None


class _Worker:
    """A thread that drains one lane after the other."""

    __slots__ = ("bell", "idle", "lane", "thread")

    def __init__(self, lane: Lane) -> None:
        self.lane: Lane | None = lane
        self.idle = False  # True until it is given a lane or sent home
        self.bell = Bell()
        self.thread: threading.Thread | None = None


class LaneWorkers:
    """The threads that drain lanes: as many as handlers are running at once."""

    def __init__(self) -> None:
        # Guards `_idle`, `_all` and `_closed`. Any thread may hold it, for a list operation; re-entrant, because a
        # finalizer may come in between.
        self._lock = threading.RLock()
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []  # some of them may have left
        self._closed = False
        self._started = Bell()  # rung when a worker has begun, or cannot begin

    def submit(self, lane: Lane) -> None:
        """Have `lane` drained by an idle worker, or by a new one; after `close()` too, that worker then leaves."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                worker.lane, worker.idle = lane, False
        if worker is not None:
            worker.bell.ring()
            return
        worker = _Worker(lane)
        with self._lock:
            self._all = [w for w in self._all if w.thread is None or w.thread.is_alive()]
            self._all.append(worker)
        try:
            start_thread("lane", self._run, worker)
        except RuntimeError:
            # The interpreter is shutting down and starts no more threads: the exit hook drains the lane itself.
            with self._lock:
                self._all.remove(worker)
            self._started.ring()
            lane.release()

    def close(self) -> None:
        """Send idle workers home; busy ones leave when their lane is empty."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in idle:
                worker.idle = False
        for worker in idle:
            worker.bell.ring()

    def threads(self) -> list[threading.Thread]:
        """The threads that have not left yet. Waits for those that are on their way in, which takes a moment."""
        self._started.wait_for(lambda: all(worker.thread is not None for worker in self._workers()), Deadline(1.0))
        return [worker.thread for worker in self._workers() if worker.thread is not None and worker.thread.is_alive()]

    def _workers(self) -> list[_Worker]:
        with self._lock:
            return self._all.copy()

    def _run(self, worker: _Worker) -> None:
        worker.thread = threading.current_thread()
        self._started.ring()
        generation = fork_generation()
        while worker.lane is not None:
            worker.lane.drain()
            if fork_generation() != generation:
                return  # a handler forked and returned: this is its child's only thread, and nobody's worker
            with self._lock:
                worker.lane = None
                if self._closed:
                    return
                worker.idle = True
                self._idle.append(worker)
            if not worker.bell.wait_for(lambda: not worker.idle, Deadline(IDLE_TIMEOUT)):
                with self._lock:
                    if worker.idle:  # still: no work was handed over in the very moment
                        self._idle.remove(worker)
                        return
