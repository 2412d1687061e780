"""Serial queues that shared workers drain.

A *queue* keeps the order of one client's events. Few workers serve many queues: one is woken or started only when a
queue has something to do and nobody drains it, so that 500 quiet clients need no thread, and a handler that blocks
holds up its own queue only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from .deadline import Deadline
from .latch import Notifier

logger: logging.Logger = logging.getLogger(__name__)

Item: TypeAlias = tuple[Any, ...]
"""What is queued: first a function that is called with the item itself, last how many bytes it holds, between them
what the function needs. It is one tuple, because what waits in a queue is looked through by each run of the garbage
collector."""


class Workers(Protocol):
    """Who drains queues."""

    def submit(self, queue: SerialQueue) -> None:
        """Have `queue.drain()` called: soon on another thread, or on this one when it has nothing better to do."""


class QueueOverflow(Exception):  # noqa: N818 - a signal to the poster, not an error that a user sees
    """The queue is full; not all was queued."""


def _call_function(item: Item) -> None:
    item[1]()


class _Turn:
    """The right to drain a queue. A call of `run_queued()` has one of its own; `thread` is None for a worker's."""

    __slots__ = ("thread",)

    def __init__(self, thread: int | None = None) -> None:
        self.thread = thread


class SerialQueue:
    """A serial queue of functions to call. They run in order, one at a time, never on two threads at once.

    Args:
        max_items: how many items may wait.
        max_bytes: how many bytes, by the sizes that `post()` is told, may wait.
        manual: nobody drains the queue but `run_queued()`.
    """

    def __init__(self, *, max_items: int = 100_000, max_bytes: int = 64 * 1024 * 1024, manual: bool = False) -> None:
        # Held by `post_if()`, for a few assignments, so that what that decides and the place in the
        # queue are one step. Any thread may be one; re-entrant, because a finalizer or signal handler may post in
        # between. Whoever else posts, and whoever takes from the queue, does without.
        self._lock = threading.RLock()
        self._items: deque[Item] = deque()
        self._bytes_posted = 0
        self._bytes_taken = 0
        # Who drains the queue, under the key 0; empty if nobody does. Not an attribute, because `setdefault()` is one
        # step that no other thread and no signal handler can split.
        self._turns: dict[int, _Turn] = {}
        #: Identity of the thread that runs items; None if none does.
        self.runs_on: int | None = None
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.manual = manual
        # Rung when an item comes and when nobody drains the queue any more, for run_queued().
        self._notifier = Notifier()

    def post(self, function: Callable[[], object], workers: Workers, size: int = 0, *, force: bool = False) -> None:
        """Queue a function; `workers` provides the thread that calls it. Never blocks.

        Args:
            function: what it raises is logged.
            workers: where a thread is found if nobody drains the queue now.
            size: bytes that the function holds. One thread at a time posts what holds any.
            force: queue it even when the queue is full (for the last events of a session).

        Raises:
            QueueOverflow: the queue is full.
        """
        self._append([(_call_function, function, size)], size, force)
        self._call(workers)

    def post_all(self, items: list[Item], workers: Workers, size: int) -> None:
        """As `post()`, for what comes together, and its size. If the queue gets full, the first of them are queued."""
        try:
            self._append(items, size)
        finally:
            self._call(workers)

    def post_if(
        self,
        when: Callable[[], bool],
        function: Callable[[], object] | None,
        workers: Workers,
        size: int = 0,
        *,
        force: bool = False,
    ) -> bool:
        """As `post()`, if `when()` says so; returns whether it did.

        Args:
            when: called under the queue's lock, so that what it decides and the place of the function in the queue are
                one step. It may only read and assign.
            function: None: nothing is queued; this only decides.
            workers, size, force: as for `post()`.

        Raises:
            QueueOverflow: the queue is full.
        """
        with self._lock:
            if not when():
                return False
            if function is None:
                return True
            self._append([(_call_function, function, size)], size, force)
        self._call(workers)
        return True

    def _append(self, items: list[Item], size: int, force: bool = False) -> None:
        queued, bytes_queued = len(self._items) + len(items), self._bytes_posted - self._bytes_taken + size
        if force or (queued <= self._max_items and bytes_queued <= self._max_bytes):
            if size:
                self._bytes_posted += size
            self._items.extend(items)
            return
        if len(items) == 1:
            raise QueueOverflow
        for item in items:
            self._append([item], item[-1])

    def _call(self, workers: Workers) -> None:
        """Something was queued. Whoever has the turn looks into the queue again after giving it back."""
        self._notifier.notify_all()
        if not self._turns and not self.manual:
            workers.submit(self)

    @property
    def is_current(self) -> bool:
        """True on the thread that runs an item of this queue right now."""
        return self.runs_on == threading.get_ident()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def bytes_queued(self) -> int:
        """What the queued items hold."""
        return self._bytes_posted - self._bytes_taken

    def drain(self) -> None:
        """Run what is queued until nothing is left, unless somebody does. Called by the worker that comes for it."""
        more = self._take(_Turn())
        while more:
            try:
                self.runs_on = threading.get_ident()
                self._run_all()
            except BaseException:
                # An exit or the like: on a thread that serves other queues too it ends nothing.
                logger.exception("An item of an event queue tried to end its thread")
            else:
                self.runs_on = None
                self._release()
                # What came between the last look and the release found nobody to be asked.
                more = bool(self._items) and self._take(_Turn())

    def _release(self) -> None:
        """Nobody drains the queue any more: the next `post()` finds somebody, or `run_queued()` takes over."""
        self._turns.clear()
        self._notifier.notify_all()

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
            self._notifier.wait_for(ready, deadline)
            count = len(self._items)
            while done < count and self._turns.get(0) is turn and self._run_one():
                done += 1
        finally:
            if self._turns.get(0) is turn:
                self._release()
        return done

    def wake(self) -> None:
        """Let `run_queued()` ask its `until` again."""
        self._notifier.notify_all()

    def _take(self, turn: _Turn) -> bool:
        """From now on `turn` drains the queue, unless another thread's does."""
        holder = self._turns.setdefault(0, turn)
        if holder is not turn and holder.thread == turn.thread is not None:
            # This thread is here already: a signal handler has interrupted it, or Ctrl-C kept it from giving its turn
            # back.
            self._turns[0] = holder = turn
        return holder is turn

    def _run_all(self) -> None:
        # Written out, not with _run_one(), because every event of every client passes here.
        while True:
            try:
                item = self._items.popleft()
            except IndexError:
                return
            self._bytes_taken += item[-1]
            try:
                item[0](item)
            except Exception:
                logger.exception("An item of an event queue raised")

    def _run_one(self) -> bool:
        try:
            item = self._items.popleft()
        except IndexError:
            return False
        self._bytes_taken += item[-1]
        try:
            self.runs_on = threading.get_ident()
            item[0](item)
        except Exception:
            logger.exception("An item of an event queue raised")
        finally:
            self.runs_on = None
        return True

    def after_fork_in_child(self) -> None:
        """Start anew: whoever held the lock or drained the queue does not exist in this process."""
        self._lock = threading.RLock()
        self._items = deque()
        self._bytes_posted = self._bytes_taken = 0
        self._turns = {}
        self.runs_on = None
