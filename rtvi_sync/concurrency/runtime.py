"""The threads that all sessions of the process share, and who counts them."""

from __future__ import annotations

import threading
import time

from .deadline import Deadline, join_thread
from .io_thread import IOThread
from .lifecycle import fork_generation, register_for_fork, register_idle
from .timer_thread import TimerThread
from .worker_pool import WorkerPool

# A runtime that nobody uses waits so many seconds for somebody, because to start its threads costs as much as to
# connect.
IDLE_TIMEOUT = 5.0


class Runtime:
    """The io thread, the queue workers and the timer thread of the sessions that are live now. Made by
    `acquire_runtime()`.
    """

    def __init__(self) -> None:
        self.io: IOThread = IOThread()
        self.workers: WorkerPool = WorkerPool(self.io)
        self.timer: TimerThread = TimerThread()
        # These three are guarded by the lock of the one `_HubSlot`.
        self.users: int = 0
        self.unused_since: float = 0.0
        self.watched: bool = False  # a timer of the io thread will look whether it is used
        self._generation = fork_generation()

    def release(self) -> None:
        """One session less. Never waits. A runtime that nobody uses for a while is retired: its threads end."""
        # In a forked child the threads are the parent's, and the locks may be held for ever.
        if self._generation == fork_generation() and _slot.leave(self):
            self.io.call(self._look_again)

    def _look_again(self) -> None:
        """On the io thread."""
        moment = _slot.retire_unused(self)
        if moment is not None:
            self.io.call_later(moment, self._look_again)

    def retire(self) -> None:
        """Nobody uses it (any more): let its threads end."""
        self.timer.close()
        self.workers.close()
        self.io.close()

    def join(self, deadline: Deadline) -> None:
        """Wait for the threads of a retired runtime, save the calling one."""
        for thread in (self.io.thread, *self.workers.threads()):
            if thread is not threading.current_thread():
                join_thread(thread, deadline)
        self.timer.join(deadline.sooner(5.0))


class _HubSlot:
    """Where the current runtime is found."""

    def __init__(self) -> None:
        # Guards `_current` and the `users` of every runtime. Any thread may hold it, for a few assignments. A runtime
        # is made outside of it, because that starts a thread: where gevent came after this lock, it would be held while
        # greenlets take turns, and the second one to ask for it would stop them all. Re-entrant, because a finalizer
        # may come in between.
        self._lock = threading.RLock()
        self._current: Runtime | None = None
        register_for_fork(self)
        register_idle(self)

    def enter(self) -> Runtime:
        with self._lock:
            if self._current is not None:
                self._current.users += 1
                return self._current
        spare: Runtime | None = Runtime()
        try:
            with self._lock:
                if self._current is None:
                    self._current, spare = spare, None
                assert self._current is not None
                self._current.users += 1
                return self._current
        finally:
            if spare is not None:  # others were faster
                spare.retire()
                spare.join(Deadline(1.0))

    def leave(self, runtime: Runtime) -> bool:
        """One user less; True if somebody has to begin to look after `runtime`."""
        with self._lock:
            if runtime.users:
                runtime.users -= 1
            if runtime.users:
                return False
            runtime.unused_since = time.monotonic()
            before, runtime.watched = runtime.watched, True
            return not before

    def retire_unused(self, runtime: Runtime) -> float | None:
        """Retire `runtime` if it has been unused for a while; return the seconds until then, None if it is used."""
        with self._lock:
            if runtime.users or self._current is not runtime:
                runtime.watched = False
                return None
            moment = runtime.unused_since + IDLE_TIMEOUT - time.monotonic()
            if moment > 0:
                return moment
            # Retired for good: the next session makes a new runtime and cannot meet threads that are on their way out.
            self._current = None
        runtime.retire()
        return None

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """Retire a runtime that nobody uses now."""
        with self._lock:
            runtime = self._current
            if runtime is None or runtime.users:
                return
            self._current = None
        runtime.retire()
        runtime.join(deadline)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._current = None


_slot = _HubSlot()


def acquire_runtime() -> Runtime:
    """The runtime of this process, with one user more; pair it with `Runtime.release()`."""
    return _slot.enter()
