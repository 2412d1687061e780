"""Work that shared workers do on request, never on two threads at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from .logs import package_logger

logger: logging.Logger = package_logger(__name__)


class Drainable(Protocol):
    """Work for a worker."""

    def drain(self) -> None:
        """Do all pending work, unless another thread does it. May block, and never raises."""


class Workers(Protocol):
    """A pool of threads that work."""

    def submit(self, work: Drainable) -> None:
        """Schedule a call of `work.drain()`, on another thread or on this one."""

    def submit_soon(self, work: Drainable) -> None:
        """Schedule the same within a few milliseconds, together with other work that is submitted so."""


class SerialWork:
    """A function that workers run on request. Any number of requests during a run lead to one more run.

    Args:
        function: may block, which holds one worker and nothing else. An exception that it raises is logged.
        workers: the threads that run it.
    """

    def __init__(self, function: Callable[[], object], workers: Workers) -> None:
        self._function = function
        self._workers = workers
        self._called = False
        # Holds the thread that runs the function under the key 0. Not an attribute, because `setdefault()` is one step
        # that no other thread and no signal handler can split.
        self._runners: dict[int, threading.Thread] = {}

    def call(self) -> None:
        """Have the function called after this moment. Any thread, in finalizers too; does not block."""
        self._called = True
        if not self._runners:  # a thread that runs it looks again after it has left
            self._workers.submit(self)

    def call_soon(self) -> None:
        """Request a run as `call()` does, but up to 1.5 ms later, together with other calls of this method."""
        self._called = True
        if not self._runners:
            self._workers.submit_soon(self)

    @property
    def runner(self) -> threading.Thread | None:
        """The thread that runs the function now, or None."""
        return self._runners.get(0)

    def drain(self) -> None:
        """Run the function if it was called, unless another thread does. Called by a worker."""
        thread = threading.current_thread()
        while self._called and self._runners.setdefault(0, thread) is thread:
            self._called = False
            try:
                self._function()
            except BaseException:  # SystemExit, too, because the thread serves others
                logger.exception("Work of a worker raised")
            self._runners.clear()
