"""Calls that wait for an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .deadline import Deadline
from .gate import Gate

T = TypeVar("T")


class Waiter(Generic[T]):
    """One call that waits for one answer. Settled at most once, by any thread; later answers are ignored."""

    __slots__ = ("_error", "_gate", "_value")

    def __init__(self) -> None:
        self._gate = Gate()
        self._value: T | None = None
        self._error: BaseException | None = None

    def wait(self, deadline: Deadline) -> bool:
        """Wait until settled; False if `deadline` passed first."""
        return self._gate.wait(deadline)

    def result(self) -> T:
        """The answer, after `wait()` returned True. Raises the error it was rejected with."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        self._value = value
        self._error = error
        self._gate.set()


class Pending(Generic[T]):
    """The calls of one session that wait for an answer, by the id of their request.

    Every waiter is settled exactly once: by its answer, by `fail_all`, or it is discarded by the call that gave up.
    """

    def __init__(self) -> None:
        # Guards `_waiters` and `_make_failure`. Any thread may hold it, for a dict operation.
        self._lock = threading.Lock()
        self._waiters: dict[str, Waiter[T]] = {}
        self._make_failure: Callable[[], BaseException] | None = None

    def register(self, key: str) -> Waiter[T]:
        """Expect an answer to `key`. Call it before the request is written, or the answer may come first.

        Raises:
            BaseException: made by the function that `fail_all` was called with, if it was.
            ValueError: an answer to `key` is expected already.
        """
        waiter: Waiter[T] = Waiter()
        with self._lock:
            if self._make_failure is not None:
                raise self._make_failure()
            if key in self._waiters:
                raise ValueError(f"A request with the id {key!r} is waiting for its answer already")
            self._waiters[key] = waiter
        return waiter

    def __contains__(self, key: object) -> bool:
        return key in self._waiters

    def discard(self, key: str) -> None:
        """The call gave up: an answer to `key` that comes later is nobody's."""
        with self._lock:
            self._waiters.pop(key, None)

    def resolve(self, key: str, value: T) -> bool:
        """Hand the answer to whoever waits for `key`; False if nobody does."""
        with self._lock:
            waiter = self._waiters.pop(key, None)
        if waiter is None:
            return False
        waiter._settle(value, None)
        return True

    def reject(self, key: str, error: BaseException) -> bool:
        """Fail the call that waits for `key`; False if nobody does."""
        with self._lock:
            waiter = self._waiters.pop(key, None)
        if waiter is None:
            return False
        waiter._settle(None, error)
        return True

    def fail_all(self, make_error: Callable[[], BaseException]) -> int:
        """Fail every waiting call and every later `register()`. Returns how many were waiting.

        Args:
            make_error: makes one exception per call, because an exception raised on two threads mixes their
                tracebacks. It is called under the lock by `register()`: it must only construct.
        """
        with self._lock:
            if self._make_failure is None:
                self._make_failure = make_error
            waiters = list(self._waiters.values())
            self._waiters.clear()
        for waiter in waiters:
            waiter._settle(None, make_error())
        return len(waiters)
