"""Short tasks on a pool of threads.

Starting a thread costs about ten times as much as waking one, and on the main thread twice that. Connecting and ending
a session need several threads, each for a short time. So a thread waits a few seconds for the next task.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .deadline import Deadline, join_thread
from .latch import Latch, Notifier
from .lifecycle import fork_generation, is_exiting, register_for_fork, register_idle, start_thread

# An idle thread ends after this many seconds.
IDLE_TIMEOUT = 5.0


class PoolTask:
    """A call of `target(*args)` on a thread of the package, as if the thread had been started for it.

    Args:
        role: the thread is named ``rtvi-<role>-<n>`` during the call.
        target: an exception that it raises ends the thread, as with any thread.
        args: the arguments.
    """

    __slots__ = ("_args", "_target", "_thread", "done", "role")

    def __init__(self, role: str, target: Callable[..., object], *args: Any) -> None:
        self.role: str = role
        self._target: Callable[..., object] | None = target
        self._args = args
        self._thread: threading.Thread | None = None
        #: Open once the call has returned or raised, and its thread is idle.
        self.done: Latch = Latch()

    def start(self) -> None:
        """Start the call on an idle thread, or on a new one. May be called on any thread, in finalizers too.

        If Ctrl-C interrupts this method, the call may still be made.

        Raises:
            NoThreadError
        """
        # At the interpreter's exit a task on an idle thread could not start another task.
        if not is_exiting():
            for idle in _pool.idle_threads.copy():
                if idle.assign(self):
                    return
        start_thread(self.role, _pool.work, self)

    @property
    def is_current(self) -> bool:
        """True on the thread that makes the call."""
        return current_task() is self

    @property
    def threads(self) -> list[threading.Thread]:
        """The thread that makes the call now, if any."""
        thread = self._thread
        return [] if thread is None else [thread]

    def _run(self, idle: _IdleThread) -> bool:
        """Make the call; return False if it has forked, and this is the only thread of the child."""
        target, self._target = self._target, None
        args, self._args = self._args, ()
        assert target is not None
        self._thread = idle.thread
        _running[threading.get_ident()] = self
        generation = fork_generation()
        try:
            contextvars.Context().run(target, *args)
            del target, args  # an idle thread must not keep references
            if fork_generation() != generation:
                return False
            _pool.idle_threads.appendleft(idle)  # before `done` is set, so that the next task finds this thread
            return True
        finally:
            self._thread = None
            _running.pop(threading.get_ident(), None)
            self.done.set()


# By the identities of their threads.
_running: dict[int, PoolTask] = {}


def current_task() -> PoolTask | None:
    """Return the task of the calling thread; None if it is no thread of the pool."""
    return _running.get(threading.get_ident())


class _IdleThread:
    """A thread that waits for one task."""

    __slots__ = ("_notifier", "_taken", "thread")

    def __init__(self, thread: threading.Thread) -> None:
        self.thread = thread
        self._notifier = Notifier()
        # Holds the task under the key 0. Not an attribute, because `setdefault()` is one step that no other thread and
        # no signal handler can split.
        self._taken: dict[int, PoolTask | None] = {}

    def assign(self, task: PoolTask | None) -> bool:
        """Assign `task` to the thread (None ends the thread); return False if the thread is not available."""
        if self.thread is threading.current_thread():
            return False  # a finalizer runs on it, and would wait for itself
        try:
            return self._taken.setdefault(0, task) is task
        finally:
            self._notifier.notify_all()

    def wait(self) -> PoolTask | None:
        """Return the assigned task; None if the thread is to end. Called by the thread itself."""
        self._notifier.wait_for(lambda: self._taken, Deadline(IDLE_TIMEOUT))
        return self._taken.setdefault(0, None)


class _ThreadPool:
    """The idle threads."""

    def __init__(self) -> None:
        # The most recently used thread is first, so that surplus threads reach their limit. Every use is one step.
        self.idle_threads: deque[_IdleThread] = deque()
        register_for_fork(self)
        register_idle(self)

    def work(self, task: PoolTask | None) -> None:
        """Run tasks on the calling thread, from its first one on."""
        thread = threading.current_thread()
        number = thread.name.rpartition("-")[2]
        while task is not None:
            thread.name = f"rtvi-{task.role}-{number}"
            idle = _IdleThread(thread)
            if not task._run(idle):
                return
            thread.name = f"rtvi-idle-{number}"
            task = None  # it may refer to objects that must be collected
            task = idle.wait()
            self.idle_threads.remove(idle)

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """End the idle threads, and wait for them until `deadline`."""
        leaving = [idle.thread for idle in self.idle_threads.copy() if idle.assign(None)]
        for thread in leaving:
            join_thread(thread, deadline)

    def after_fork_in_child(self) -> None:
        """Forget the threads, which do not exist in the child."""
        self.idle_threads.clear()
        for other in _running.keys() - {threading.get_ident()}:
            del _running[other]


_pool = _ThreadPool()
