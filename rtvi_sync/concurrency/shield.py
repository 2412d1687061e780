"""Work that no signal can tear apart.

Python runs signal handlers, the one behind Ctrl-C among them, on the main thread, between any two instructions; what
they raise leaves there what was half done, and no `try` is without a gap. So what must be done as a whole is done on
another thread, and the main thread only waits for it, at a gate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .deadline import Deadline, on_main_thread
from .lifecycle import NoThreadError
from .pool_task import PoolTask

T = TypeVar("T")


# How long an interrupted call waits for its work to end sooner, in seconds.
_LEAVE_TIMEOUT = 5.0


def shielded(work: Callable[[], T], on_interrupt: Callable[[], object] | None = None, limit: float | None = None) -> T:
    """Return what `work()` returns, or raise what it raises; once begun it is done to its end, whatever strikes.

    Args:
        work: done on a thread of its own if this is the main thread.
        on_interrupt: called if an exception strikes this thread while it waits, Ctrl-C for example. It has `work` end
            sooner; only then is the exception raised. None: it is raised at once, and the work goes on.
        limit: seconds that the main thread waits. A signal handler may have struck it where it holds a lock, of
            `logging` for example, that the work needs.

    Raises:
        TimeoutError: the limit has passed; the work goes on.
    """
    if not on_main_thread():
        return work()
    call = _Call(work)
    job = PoolTask("call", call.run)
    try:
        try:
            job.start()
            done = job.done.wait(Deadline(limit))
        except NoThreadError:
            call.run()
            done = True
    except BaseException:
        if on_interrupt is not None and not call.withdraw():
            on_interrupt()
            job.done.wait(Deadline(_LEAVE_TIMEOUT))
        raise
    if not done:
        raise TimeoutError
    return call.result()


class _Call(Generic[T]):
    """A call that is made once, and what came of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = deque([work])
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def withdraw(self) -> bool:
        """Do not make the call; False if it is being made."""
        try:
            self._work.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        try:
            work = self._work.pop()
        except IndexError:
            return  # withdrawn, or made by another thread
        try:
            self._results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            self._errors.append(error)

    def result(self) -> T:
        if self._errors:
            raise self._errors.pop()
        return self._results.pop()
