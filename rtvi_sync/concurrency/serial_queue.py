"""Serial queues that shared workers drain.

A queue keeps the order of one client's events. Few workers serve many queues: a worker is woken or started only when a
queue has items and no thread drains it. So 500 idle clients need no thread, and a handler that blocks delays only its
own queue.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from .deadline import Deadline
from .latch import Notifier
from .lock import new_lock
from .logs import package_logger
from .serial_work import Workers

logger: logging.Logger = package_logger(__name__)

Item: TypeAlias = tuple[Any, ...]
"""A queued call: first a function that is called with the item itself, last the size of the item in bytes, between them
the function's data. It is one tuple, because each run of the garbage collector traverses the queued objects."""
_Token: TypeAlias = list[int]
"""The right to drain a queue: a list of each call's own, which holds the identity of the thread."""


class QueueOverflow(Exception):  # noqa: N818 - a signal to the poster, not an error that a user sees
    """The queue is full, and some items were not queued."""


def _call_function(item: Item) -> None:
    item[1]()


class SerialQueue:
    """A queue of functions to call. They run in order, one at a time, never on two threads at once.

    Args:
        max_items: the maximum number of queued items.
        max_bytes: the maximum of queued bytes, by the sizes that `post()` is given.
        manual: only `run_queued()` drains the queue.
    """

    def __init__(self, *, max_items: int = 100_000, max_bytes: int = 64 * 1024 * 1024, manual: bool = False) -> None:
        # Guards the decision of `post_if()` and the place of its item in the queue. Any thread may hold it, for a few
        # assignments. Re-entrant, because a finalizer or signal handler may post on the thread that holds it. All other
        # methods do without.
        self._lock = new_lock()
        self._items: deque[Item] = deque()
        self._bytes_posted = 0
        self._bytes_taken = 0
        # Holds the token of the draining thread under the key 0; empty if no thread drains the queue. Not an attribute,
        # because `setdefault()` is one step that no other thread and no signal handler can split.
        self._tokens: dict[int, _Token] = {}
        #: Identity of the thread that runs items; None if no thread does.
        self.runs_on: int | None = None
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.manual = manual
        # Notified for run_queued(), when an item is queued and when the token is released.
        self._notifier = Notifier()

    def post(self, function: Callable[[], object], workers: Workers, size: int = 0, *, force: bool = False) -> None:
        """Queue a function, which a thread of `workers` calls. Never blocks.

        Args:
            function: an exception that it raises is logged.
            workers: the threads that drain the queue if no thread does now.
            size: bytes that the function holds. Functions with a size above 0 must be posted by one thread at a time.
            force: queue it even if the queue is full (for the last events of a session).

        Raises:
            QueueOverflow: the queue is full.
        """
        self._append([(_call_function, function, size)], size, force)
        self._call(workers)

    def post_all(self, items: list[Item], workers: Workers, size: int) -> None:
        """Queue several items of `size` bytes in all. If the queue gets full, queue the first of them and raise."""
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
        """Queue a function, as `post()` does, if `when()` returns True; return its result.

        Args:
            when: called under the queue's lock, so that its decision and the place of the function in the queue are
                one step. It may only read and assign.
            function: None: queue nothing, only call `when()`.
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

    def run_alone(self, function: Callable[[], object], workers: Workers) -> bool:
        """Call `function()`, which does not block, on this thread, if nothing is queued and no thread runs an item.

        Args:
            function: an exception that it raises is logged.
            workers: the threads that drain items posted during the call.

        Returns:
            True if it was called; never in a manual queue.
        """
        token = [threading.get_ident()]
        if self.manual or self._items or self._tokens.setdefault(0, token) is not token:
            return False
        is_alone = not self._items
        if is_alone:
            self.runs_on = token[0]
            try:
                function()
            except BaseException:  # as in `drain()`
                logger.exception("An item of an event queue raised")
            self.runs_on = None
        self._release()
        if self._items:
            self._call(workers)
        return is_alone

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
        """Find a thread for new items. A thread with the token checks the queue again after it has released it."""
        self._notifier.notify_all()
        if not self._tokens and not self.manual:
            workers.submit(self)

    @property
    def is_current(self) -> bool:
        """True on the thread that runs an item of this queue."""
        return self.runs_on == threading.get_ident()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def bytes_queued(self) -> int:
        """The size of the queued items."""
        return self._bytes_posted - self._bytes_taken

    def drain(self) -> None:
        """Run the queued items until none is left, unless another thread does. Called by a worker."""
        token = [threading.get_ident()]
        # Checked again after the release: items that were posted just before it have called no worker.
        while self._items and self._tokens.setdefault(0, token) is token:
            self.runs_on = token[0]
            while self._items:  # without _run_one(), because every event of every client passes here
                try:
                    item = self._items.popleft()
                    self._bytes_taken += item[-1]
                    item[0](item)
                except BaseException:  # SystemExit, too, because the thread serves other queues
                    logger.exception("An item of an event queue raised")
            self.runs_on = None
            self._release()

    def _release(self) -> None:
        """Release the token: the next `post()` calls a worker, or `run_queued()` gets the token."""
        self._tokens.clear()
        self._notifier.notify_all()

    def run_queued(self, deadline: Deadline, until: Callable[[], bool] | None = None) -> int:
        """Block until `deadline` for a first item, then run the queued items on this thread; return how many ran.

        One thread runs items at a time: while one does, a second caller of this method blocks until the token is free.

        Args:
            deadline: limit of the wait for a first item.
            until: ends the wait when it returns True.
        """
        token, done = [threading.get_ident()], 0

        def ready() -> bool:
            return (bool(self._items) and self._take(token)) or (until is not None and until())

        # Ctrl-C may interrupt the application's thread anywhere. The token must be released even then.
        try:
            self._notifier.wait_for(ready, deadline)
            count = len(self._items)
            while done < count and self._tokens.get(0) is token and self._run_one():
                done += 1
        finally:
            if self._tokens.get(0) is token:
                self._release()
        return done

    def wake(self) -> None:
        """Make `run_queued()` call its `until` again."""
        self._notifier.notify_all()

    def _take(self, token: _Token) -> bool:
        """Acquire the right to drain the queue for `token`; return False if another thread has it."""
        holder = self._tokens.setdefault(0, token)
        if holder is not token and holder == token:
            # This thread has the right: a signal handler runs on it, or Ctrl-C kept it from releasing its token.
            self._tokens[0] = holder = token
        return holder is token

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
        """Reset the queue: a thread that held the lock or the token does not exist in this process."""
        self._lock = new_lock()
        self._items = deque()
        self._bytes_posted = self._bytes_taken = 0
        self._tokens = {}
        self.runs_on = None
