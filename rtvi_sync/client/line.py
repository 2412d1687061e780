"""A line of threads that do one thing after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..errors import RequestTimeoutError


class Line:
    """Threads that ask one after the other, in the order in which they came."""

    def __init__(self) -> None:
        # Each changes it in single steps.
        self._waiting: list[object] = []
        self._moved = Notifier()

    @contextlib.contextmanager
    def place(self, deadline: Deadline) -> Iterator[None]:
        """Wait for the caller's turn, and keep it in the block.

        Raises:
            RequestTimeoutError: it did not come before `deadline`.
        """
        place = object()
        try:
            self._waiting.append(place)
            if not self._moved.wait_for(lambda: self._waiting[0] is place, deadline):
                raise RequestTimeoutError(
                    f"Another thread's ask() has not returned within {deadline.timeout} s. Pass a larger timeout, or "
                    "give each thread a client of its own."
                )
            yield
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            self._moved.notify_all()
