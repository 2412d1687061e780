"""The lock of the threads that ask."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..errors import RequestTimeoutError, WouldDeadlockError


class AskLock:
    """A fair lock: threads ask one after the other, in the order in which they came."""

    def __init__(self) -> None:
        # The identities of threads; the first holds the lock. Each changes it in single steps.
        self._waiting: list[int] = []
        self._released = Notifier()

    @contextlib.contextmanager
    def hold(self, deadline: Deadline) -> Iterator[None]:
        """Acquire the lock, and hold it in the block.

        Raises:
            RequestTimeoutError: it was not free before `deadline`.
            WouldDeadlockError: called in a signal handler, and the thread that it interrupts holds the lock or
                waits for it.
        """
        me = threading.get_ident()
        if me in self._waiting:
            raise WouldDeadlockError(
                "ask() was called in a signal handler that has interrupted another ask(). Call it on another thread."
            )
        try:
            self._waiting.append(me)
            if not self._released.wait_for(lambda: self._waiting[0] == me, deadline):
                raise RequestTimeoutError(
                    f"Another thread's ask() has not returned within {deadline.timeout} s. Pass a larger timeout, or "
                    "give each thread a client of its own."
                )
            yield
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
            self._released.notify_all()
