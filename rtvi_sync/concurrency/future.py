"""The result of work on another thread."""

from __future__ import annotations

from typing import Generic, TypeVar

from .deadline import Deadline
from .latch import Notifier

T = TypeVar("T")


class Future(Notifier, Generic[T]):
    """One result or error that one thread waits for. Any thread may set it; only the first outcome counts."""

    __slots__ = ("_outcomes",)

    def __init__(self) -> None:
        super().__init__()
        self._outcomes: list[tuple[T | None, BaseException | None]] = []

    def wait(self, deadline: Deadline) -> bool:
        """Block until there is an outcome; return False if `deadline` passes first."""
        return self.wait_for(self._outcomes.__len__, deadline)

    def result(self) -> T:
        """Return the result, or raise the error. Call it after `wait()` has returned True."""
        value, error = self._outcomes[0]
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def resolve(self, value: T) -> None:
        """Set the result. Never blocks."""
        self._set(value, None)

    def reject(self, error: BaseException) -> None:
        """Set the error that `result()` raises. Never blocks."""
        self._set(None, error)

    def _set(self, value: T | None, error: BaseException | None) -> None:
        try:
            self._outcomes.append((value, error))
            self.notify_all()
        except BaseException:  # for the reason in Latch.set()
            self.notify_all()
            raise
