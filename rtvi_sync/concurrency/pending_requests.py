"""Calls that wait for an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from .deadline import Deadline
from .latch import Notifier

T = TypeVar("T")


class Waiter(Notifier, Generic[T]):
    """One call that waits for one answer. Settled at most once, by any thread; later answers are ignored."""

    __slots__ = ("_outcomes",)

    def __init__(self) -> None:
        super().__init__()
        self._outcomes: list[tuple[T | None, BaseException | None]] = []  # the first one counts

    def wait(self, deadline: Deadline) -> bool:
        """Wait until settled; False if `deadline` passed first."""
        return self.wait_for(self._outcomes.__len__, deadline)

    def result(self) -> T:
        """The answer, after `wait()` returned True. Raises the error it was rejected with."""
        value, error = self._outcomes[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        try:
            self._outcomes.append((value, error))
            self.notify_all()
        except BaseException:  # as in Latch.set()
            self.notify_all()
            raise


class Pending(Generic[T]):
    """The calls of one session that wait for an answer, by the id of their request.

    Every waiter is settled exactly once: by its answer, by `fail_all`, or it is discarded by the call that gave up.

    There is no lock, which a thread that waits could hold while a signal handler on it makes a request: each change of
    the dict is one step.
    """

    def __init__(self) -> None:
        self._waiters: dict[str, Waiter[T]] = {}
        self._make_failure: Callable[[], BaseException] | None = None

    def register(self, key: str) -> Waiter[T]:
        """Expect an answer to `key`. Call it before the request is written, or the answer may come first.

        Raises:
            BaseException: made by the function that `fail_all` was called with, if it was.
            ValueError: an answer to `key` is expected already.
        """
        waiter: Waiter[T] = Waiter()
        if self._waiters.setdefault(key, waiter) is not waiter:
            raise ValueError(f"A request with the id {key!r} is waiting for its answer already")
        # Only now: `fail_all` either finds the waiter, or has said so before.
        if self._make_failure is not None:
            self.discard(key)
            raise self._make_failure()
        return waiter

    def __contains__(self, key: object) -> bool:
        return key in self._waiters

    def discard(self, key: str) -> None:
        """The call gave up: an answer to `key` that comes later is nobody's."""
        self._waiters.pop(key, None)

    def resolve(self, key: str, value: T) -> bool:
        """Hand the answer to whoever waits for `key`; False if nobody does."""
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return False
        waiter._settle(value, None)
        return True

    def reject(self, key: str, error: BaseException) -> bool:
        """Fail the call that waits for `key`; False if nobody does."""
        waiter = self._waiters.pop(key, None)
        if waiter is None:
            return False
        waiter._settle(None, error)
        return True

    def fail_all(self, make_error: Callable[[], BaseException]) -> int:
        """Fail every waiting call and every later `register()`. Returns how many were waiting.

        Args:
            make_error: makes one exception per call, because an exception raised on two threads mixes their
                tracebacks.
        """
        if self._make_failure is None:
            self._make_failure = make_error
        waiters = self._waiters.copy()
        for key, waiter in waiters.items():
            waiter._settle(None, make_error())
            self.discard(key)
        return len(waiters)
