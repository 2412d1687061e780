"""How threads of this package wait for each other; only idle workers do without it.

`threading.Event` and `Condition` are written in Python around a mutex. An exception that is raised inside them (Ctrl-C
interrupts the main thread between any two instructions) leaves that mutex locked, or unlocks it twice, for every
thread that uses them. A signal handler or finalizer that calls them again on the same thread blocks for ever. So each
thread that waits blocks on a lock of its own, and there is no mutex.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import WouldDeadlockError
from .deadline import Deadline, slice_of

#: Identities of the threads that must not block, because all others wait for them. A finalizer may try it there.
sleepless: set[int] = set()


def must_not_block() -> bool:
    """Return whether the calling thread is one of `sleepless`."""
    return threading.get_ident() in sleepless


class Notifier:
    """A set of threads that wait for a condition to become true.

    The thread that makes the condition true calls `notify_all()` afterwards. Both methods may be called on any thread,
    in signal handlers and in finalizers. A fork needs no cleanup: the parent's sleepers are not in the child, and
    waking them is harmless.
    """

    __slots__ = ("_sleepers",)

    def __init__(self) -> None:
        # One lock for each waiting thread, which is no mutex: it is locked while the thread sleeps and unlocked to wake
        # it. Every use of the list is one step that no other thread and no signal handler can split. A list, because a
        # session has many notifiers, and an empty deque takes 760 bytes.
        self._sleepers: list[threading.Lock] = []

    def notify_all(self) -> None:
        """Wake every thread that waits, so that it checks its condition again. Never blocks."""
        if not self._sleepers:
            return
        # Not copy(): before Python 3.12 it may collect garbage after it has read the length of the list. If a finalizer
        # then lets another thread change the list, the process crashes. A list display reads it in one step.
        for sleeper in [*self._sleepers]:
            try:  # noqa: SIM105 - suppress() takes longer than all the rest
                sleeper.release()
            except RuntimeError:  # the thread was woken before and has not checked its condition yet
                pass

    def wait_for(self, ready: Callable[[], object], deadline: Deadline) -> bool:
        """Block until `ready()` is true; return False if `deadline` passes first. Ctrl-C interrupts it everywhere.

        Args:
            ready: called on this thread, at first and after each `notify_all()`. Not called again once it was true.
            deadline: limit of the wait.

        Raises:
            WouldDeadlockError: this thread must not block, see `sleepless`.
        """
        if ready():
            return True
        # Guards nothing: this thread sleeps on it.
        sleeper = threading.Lock()
        sleeper.acquire()
        self._sleepers.append(sleeper)
        try:
            # Checked after the sleeper was added, so that no notification is missed.
            while not ready():
                remaining = deadline.remaining()
                if remaining == 0.0:
                    return False
                _check_may_sleep()
                sleeper.acquire(timeout=slice_of(remaining))
            return True
        finally:
            self._sleepers.remove(sleeper)


def _check_may_sleep() -> None:
    # Not in `wait_for()`: a notebook shows the lines around its sleep after Ctrl-C, and another error misleads there.
    if threading.get_ident() in sleepless:
        raise WouldDeadlockError(
            "A call would block the thread that reads the network, and so wait for itself. Do not make "
            "calls that wait in a finalizer: it may run on any thread."
        )


class Latch:
    """A flag that threads wait for: closed until `set()`, then open for good.

    It may be used on any thread, in signal handlers and in finalizers.
    """

    __slots__ = ("_notifier", "_open")

    def __init__(self) -> None:
        self._open = False
        self._notifier = Notifier()

    def is_set(self) -> bool:
        """Return whether the latch is open."""
        return self._open

    def set(self) -> None:
        """Open the latch and wake every thread that waits. Idempotent; never blocks."""
        try:
            self._open = True
            self._notifier.notify_all()
        except BaseException:
            # Ctrl-C is raised to the caller, but it must not leave a waiting thread asleep.
            self._notifier.notify_all()
            raise

    def wait(self, deadline: Deadline) -> bool:
        """Block until the latch is open; return False if `deadline` passes first. Ctrl-C interrupts it everywhere."""
        return self._notifier.wait_for(self.is_set, deadline)
