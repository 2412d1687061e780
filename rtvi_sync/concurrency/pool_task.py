"""Short work on a thread that stays a while for more of it.

To start a thread costs about ten times as much as to wake one, and on the main thread twice that. To connect and to
end a session takes several, each for a moment. So one that has done its work stays for the next, for a few seconds.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .deadline import Deadline, join_thread
from .latch import Latch, Notifier
from .lifecycle import fork_generation, is_exiting, name_thread, register_for_fork, register_idle, start_thread

# A thread without work leaves after so many seconds.
IDLE_TIMEOUT = 5.0


class PoolTask:
    """A call of `target(*args)` on a thread of the package, as if it had been started for it.

    Args:
        role: the thread is named ``rtvi-<role>-<n>`` meanwhile.
        target: what it raises ends the thread, as with any thread.
    """

    __slots__ = ("_args", "_target", "_thread", "done", "role")

    def __init__(self, role: str, target: Callable[..., object], *args: Any) -> None:
        self.role: str = role
        self._target: Callable[..., object] | None = target
        self._args = args
        self._thread: threading.Thread | None = None
        #: It was made, however that ended, and its thread is free.
        self.done: Latch = Latch()

    def start(self) -> None:
        """Have it made, on a thread that is free, or a new one. May be called on any thread, in finalizers too.

        Ctrl-C may keep this from returning, and not the thread from running.

        Raises:
            NoThreadError
        """
        # At the exit of the interpreter work that begins on a thread that is free would not find the next.
        if not is_exiting():
            for offer in _crew.offers.copy():
                if offer.take(self):
                    return
        start_thread(self.role, _crew.work, self)

    @property
    def is_current(self) -> bool:
        """True on its thread, while it is made."""
        return self._thread is threading.current_thread()

    @property
    def threads(self) -> list[threading.Thread]:
        """The thread that is at it now, if any."""
        thread = self._thread
        return [] if thread is None else [thread]

    def _make(self, offer: _Offer) -> None:
        target, self._target = self._target, None
        args, self._args = self._args, ()
        assert target is not None
        self._thread = threading.current_thread()
        generation = fork_generation()
        try:
            contextvars.Context().run(target, *args)
            del target, args  # a thread that is free holds nothing
            # Before anybody is told: whoever follows at once finds this thread. Not if it is the only thread of a child
            # that the job forked: that is about to end.
            if fork_generation() == generation:
                _crew.offers.appendleft(offer)
        finally:
            self._thread = None
            self.done.set()


class _Offer:
    """A thread without work offers itself, once."""

    __slots__ = ("_notifier", "_taken", "thread")

    def __init__(self) -> None:
        self.thread = threading.current_thread()
        self._notifier = Notifier()
        # The job, under the key 0. Not an attribute, because `setdefault()` is one step that no other thread and no
        # signal handler can split.
        self._taken: dict[int, PoolTask | None] = {}

    def take(self, job: PoolTask | None) -> bool:
        """Give `job` to the thread, or None to send it home; False if it is not to be had."""
        if self.thread is threading.current_thread():
            return False  # a finalizer has interrupted it, and would wait for itself
        try:
            return self._taken.setdefault(0, job) is job
        finally:
            self._notifier.notify_all()

    def wait(self) -> PoolTask | None:
        """What it was given; None if it is to leave. Called by the thread itself."""
        self._notifier.wait_for(lambda: self._taken, Deadline(IDLE_TIMEOUT))
        return self._taken.setdefault(0, None)


class _ThreadPool:
    """The threads that are free now."""

    def __init__(self) -> None:
        # The one that was busy last comes first, so that a crew which has grown shrinks again. Every use is one step.
        self.offers: deque[_Offer] = deque()
        register_for_fork(self)
        register_idle(self)

    def work(self, job: PoolTask | None) -> None:
        """What a thread of the crew does, from its first job on."""
        generation = fork_generation()
        while job is not None:
            name_thread(job.role)
            offer = _Offer()
            job._make(offer)
            if fork_generation() != generation:
                return  # the job forked and returned: this is its child's only thread
            name_thread("idle")
            job = None  # it may hold whatever its owner has
            job = offer.wait()
            self.offers.remove(offer)

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """Let those leave that are free."""
        leaving = [offer.thread for offer in self.offers.copy() if offer.take(None)]
        for thread in leaving:
            join_thread(thread, deadline)

    def after_fork_in_child(self) -> None:
        self.offers.clear()


_crew = _ThreadPool()
