"""Work that no signal can interrupt.

Python runs signal handlers (Ctrl-C, too) on the main thread, between any two instructions. An exception that they raise
leaves the work there half done, and no `try` covers every instruction. So work that must be complete runs on another
thread, and the main thread only waits for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .deadline import Deadline, on_main_thread
from .latch import must_not_block
from .lifecycle import NoThreadError
from .pool_task import PoolTask

T = TypeVar("T")


# An interrupted call waits up to this many seconds for the work that `on_interrupt()` cuts short.
_LEAVE_TIMEOUT = 5.0


def shielded(work: Callable[[], T], on_interrupt: Callable[[], object] | None = None, limit: float | None = None) -> T:
    """Run `work()` and return its result, or raise its error. Once started, the work is never interrupted.

    Args:
        work: runs on another thread if this is the main thread, or, with a `limit`, one that must not block.
        on_interrupt: called if an exception, Ctrl-C for example, interrupts this thread while it waits. It makes `work`
            end early, and the exception is raised afterwards. None: it is raised at once, and the work continues.
        limit: the main thread waits up to this many seconds. A thread that must not block does not wait at all. The
            caller may be a finalizer, or a signal handler that interrupted code holding a lock that the work needs (of
            `logging`, for example).

    Raises:
        TimeoutError: the limit has passed; the work continues.
    """
    not_here = limit is not None and must_not_block()
    if not (on_main_thread() or not_here):
        return work()
    call = _Call(work)
    task = PoolTask("call", call.run)
    try:
        try:
            task.start()
            done = task.done.wait(Deadline(0.0 if not_here else limit))
        except NoThreadError:
            call.run()
            done = True
    except BaseException:
        if on_interrupt is not None and not call.cancel():
            on_interrupt()
            task.done.wait(Deadline(_LEAVE_TIMEOUT))
        raise
    if not done:
        raise TimeoutError
    return call.result()


class _Call(Generic[T]):
    """A call that is made once, and its outcome."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = deque([work])
        self._results: list[T] = []
        self._errors: list[BaseException] = []

    def cancel(self) -> bool:
        """Cancel the call; return False if it has started."""
        try:
            self._work.pop()
        except IndexError:
            return False
        return True

    def run(self) -> None:
        """Make the call, unless it was cancelled or has started."""
        try:
            work = self._work.pop()
        except IndexError:
            return  # cancelled, or started by another thread
        try:
            self._results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised to the caller
            self._errors.append(error)

    def result(self) -> T:
        """Return the result of the call, or raise its error."""
        if self._errors:
            raise self._errors.pop()
        return self._results.pop()
