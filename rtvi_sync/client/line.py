"""A line of threads that do one thing after the other."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..errors import RequestTimeoutError, WouldDeadlockError


class Line:
    """Threads that ask one after the other, in the order in which they came."""

    def __init__(self) -> None:
        # Each changes it in single steps.
        self._waiting: list[int] = []  # identities of threads
        self._moved = Notifier()

    @contextlib.contextmanager
    def place(self, deadline: Deadline) -> Iterator[None]:
        """Wait for the caller's turn, and keep it in the block.

        Raises:
            RequestTimeoutError: it did not come before `deadline`.
            WouldDeadlockError: called in a signal handler, and the thread that it interrupts has a place.
        """
        place = threading.get_ident()
        if place in self._waiting:
            raise WouldDeadlockError(
                "ask() was called in a signal handler that has interrupted another ask(). Call it on another thread."
            )
        try:
            self._waiting.append(place)
            if not self._moved.wait_for(lambda: self._waiting[0] == place, deadline):
                raise RequestTimeoutError(
                    f"Another thread's ask() has not returned within {deadline.timeout} s. Pass a larger timeout, or "
                    "give each thread a client of its own."
                )
            yield
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            self._moved.notify_all()
