"""The lock of every object that the application's threads share with others.

Python runs signal handlers (Ctrl-C, too) on the main thread, after calls and backward jumps. Up to Python 3.13, `with
lock` has neither, so an exception that a handler raises strikes before the lock is taken or inside the block. Since
Python 3.14 `with` calls the lock: the exception may strike between the two, and the lock is held for ever.
"""

from __future__ import annotations

import _thread
import sys
import threading


class _UnlosableLock(_thread.RLock):  # type: ignore[misc] # final for mypy only
    """A re-entrant lock that `with` takes and enters without a call to built-in code in between.

    The return from `__enter__()` is no call, and neither is reading the property, although it takes the lock.
    `__exit__()` is built in: a handler runs before it or after it.
    """

    __slots__ = ()

    _taken = property(_thread.RLock.acquire)

    def __enter__(self) -> bool:  # type: ignore[override] # without the options of acquire()
        taken: bool = self._taken
        return taken


def new_lock() -> threading.RLock:
    """Return a re-entrant lock for `with`, which no signal handler can leave locked.

    Re-entrant, because a finalizer or a signal handler may run on the thread that holds it. The owner of the lock must
    expect them in the middle of a change.
    """
    # Of gevent, if it has patched the process.
    lock = threading.RLock()
    return _UnlosableLock() if sys.version_info >= (3, 14) and type(lock) is _thread.RLock else lock
