"""How threads wait for each other here: the one way in the package.

`threading.Event` and `Condition` are written in Python around a mutex. An exception that strikes inside them (Ctrl-C
strikes the main thread between any two instructions) leaves that mutex locked, or has it unlocked twice, for every
thread that uses them; a signal handler or finalizer that calls them again on the same thread blocks for ever. So a
thread that waits here does it on a lock of its own, and there is no mutex.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from ..errors import WouldDeadlockError
from .deadline import Deadline, slice_of

# Identities of the threads on which nobody may wait.
_sleepless: set[int] = set()


@contextlib.contextmanager
def sleepless() -> Iterator[None]:
    """Around the work of a thread that all others wait for: whoever waits on it, as a finalizer may, is refused."""
    me = threading.get_ident()
    _sleepless.add(me)
    try:
        yield
    finally:
        _sleepless.discard(me)


def forget_sleepless() -> None:
    """In a forked child: those threads do not exist here, and others may be given their identities."""
    _sleepless.clear()


class Notifier:
    """Wakes the threads that wait for something to become true.

    Whoever makes it true calls `ring()` afterwards. Both methods may be called on any thread, in signal handlers and in
    finalizers. Needs no care after a fork: the sleepers of the parent are not in the child, and to wake them is
    harmless.
    """

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        # One lock for each waiting thread, not as a mutex: locked while there is nothing to see, unlocked to wake its
        # thread. Every use of the list is one step that no other thread and no signal handler can split. (A session has
        # many bells, and an empty deque takes 760 bytes.)
        self._sleepers: list[threading.Lock] = []

    def notify_all(self) -> None:
        """Have everybody who waits look again. Never blocks."""
        if not self._sleepers:
            return
        # Not copy(): before Python 3.12 it may collect garbage after it has looked at the length of the list. What a
        # finalizer lets other threads do to the list meanwhile then ends the process. A display reads it in one step.
        for sleeper in [*self._sleepers]:
            try:  # noqa: SIM105 - suppress() takes longer than all the rest
                sleeper.release()
            except RuntimeError:  # it was woken before and has not looked yet
                pass

    def wait_for(self, ready: Callable[[], object], deadline: Deadline) -> bool:
        """Wait until `ready()` is true; False if `deadline` passed first. Ctrl-C interrupts it on every platform.

        Args:
            ready: called on this thread, at first and after each `ring()`. Not called again once it was true.
            deadline: limit of the wait.

        Raises:
            WouldDeadlockError: this is a thread on which nobody may wait, see `sleepless()`.
        """
        if ready():
            return True
        # Guards nothing: it is what this thread sleeps on.
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        try:
            # Only now does nothing that happens go unnoticed.
            while not ready():
                if deadline.expired:
                    return False
                if threading.get_ident() in _sleepless:
                    raise WouldDeadlockError(
                        "A call waits on the thread that reads the network, and so for itself. Was it made in a "
                        "finalizer? Those run on any thread, and must not wait."
                    )
                sleeper.acquire(timeout=slice_of(deadline.remaining()))
            return True
        finally:
            self._sleepers.remove(sleeper)


class Latch:
    """Closed until `set()`, then open for good.

    May be used on any thread, in signal handlers and in finalizers.
    """

    __slots__ = ("_notifier", "_open")

    def __init__(self) -> None:
        self._open = False
        self._notifier = Notifier()

    def is_set(self) -> bool:
        """True once it is open."""
        return self._open

    def set(self) -> None:
        """Open it: whoever waits goes on. Idempotent; never blocks."""
        try:
            self._open = True
            self._notifier.notify_all()
        except BaseException:
            # Ctrl-C is the caller's, but nobody may sleep on because of it.
            self._notifier.notify_all()
            raise

    def wait(self, deadline: Deadline) -> bool:
        """Wait until it is open; False if `deadline` passed first. Ctrl-C interrupts it on every platform."""
        return self._notifier.wait_for(self.is_set, deadline)
