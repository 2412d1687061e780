"""The threads that all sessions of the process share, and the count of their users."""

from __future__ import annotations

import threading

from .clock import monotonic
from .deadline import Deadline, join_thread
from .io_thread import IOThread
from .lifecycle import fork_generation, register_for_fork, register_idle
from .lock import new_lock
from .timer_thread import TimerThread
from .worker_pool import WorkerPool

# An unused runtime is kept for this many seconds, because starting its threads takes as long as connecting.
IDLE_TIMEOUT = 5.0


class Runtime:
    """The I/O thread, the workers and the timer thread of all live sessions. Made by `acquire_runtime()`."""

    def __init__(self) -> None:
        self.io: IOThread = IOThread()
        self.workers: WorkerPool = WorkerPool(self.io)
        self.timer: TimerThread = TimerThread()
        # These three are guarded by the lock of the only `_RuntimeSlot`.
        self.users: int = 0
        self.unused_since: float = 0.0
        self.watched: bool = False  # a timer of the I/O thread will check whether the runtime is used
        self._generation = fork_generation()

    def release(self) -> None:
        """Remove one user. Never blocks. If the runtime stays unused for `IDLE_TIMEOUT`, its threads end."""
        # In a forked child the threads do not exist, and the locks may be held for ever.
        if self._generation == fork_generation() and _slot.leave(self):
            self.io.call(self._check_unused)

    def _check_unused(self) -> None:
        """Retire the runtime if it is unused, or check again later. On the I/O thread."""
        remaining = _slot.retire_unused(self)
        if remaining is not None:
            self.io.call_later(remaining, self._check_unused)

    def retire(self) -> None:
        """End the threads of a runtime without users. Does not wait."""
        self.timer.close()
        self.workers.close()
        self.io.close()

    def join(self, deadline: Deadline) -> None:
        """Wait for the threads of a retired runtime, except the calling one."""
        while (threads := self._threads()) and not deadline.expired:
            for thread in threads:  # repeated, because the I/O thread and a worker may call one worker more as they end
                join_thread(thread, deadline)
        self.timer.join(deadline.at_most(5.0))

    def _threads(self) -> list[threading.Thread]:
        return [thread for thread in self.workers.threads() if thread is not threading.current_thread()]


class _RuntimeSlot:
    """The place of the current runtime."""

    def __init__(self) -> None:
        # Guards `_current` and the `users` of every runtime. Any thread may hold it, for a few assignments. A runtime
        # is made outside of it, because that starts a thread: if gevent patched the process after this lock was made,
        # the lock would be held across a switch of greenlets, and the next greenlet to acquire it would block them all.
        # Re-entrant, because a finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._current: Runtime | None = None
        register_for_fork(self)
        register_idle(self)

    def enter(self) -> Runtime:
        """Return the current runtime, or a new one, with one user more."""
        self._retire_failed()
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
            if spare is not None:  # another thread was faster
                spare.retire()
                spare.join(Deadline(1.0))

    def _retire_failed(self) -> None:
        """Retire the current runtime if nothing can use it: its I/O thread has failed, or its descriptors are gone."""
        runtime = self._current
        if runtime is None or not (runtime.io.detect_loss() or runtime.io.ended):
            return
        with self._lock:
            if self._current is not runtime:
                return
            self._current = None
        runtime.retire()

    def leave(self, runtime: Runtime) -> bool:
        """Remove one user; return True if the caller must start the timer that retires `runtime`."""
        with self._lock:
            if runtime.users:
                runtime.users -= 1
            if runtime.users:
                return False
            runtime.unused_since = monotonic()
            before, runtime.watched = runtime.watched, True
            return not before

    def retire_unused(self, runtime: Runtime) -> float | None:
        """Retire `runtime` if it was unused for `IDLE_TIMEOUT`; return the seconds until then, None if it is used."""
        with self._lock:
            if runtime.users or self._current is not runtime:
                runtime.watched = False
                return None
            remaining = runtime.unused_since + IDLE_TIMEOUT - monotonic()
            if remaining > 0:
                return remaining
            # It never becomes current again, so that the next session cannot use threads that are about to end.
            self._current = None
        runtime.retire()
        return None

    def stop_idle_threads(self, deadline: Deadline) -> None:
        """Retire the current runtime if it has no users."""
        self._retire_failed()  # without waiting for a thread that may block for good
        with self._lock:
            runtime = self._current
            if runtime is None or runtime.users:
                return
            self._current = None
        runtime.retire()
        runtime.join(deadline)

    def after_fork_in_child(self) -> None:
        """Forget the runtime, whose threads do not exist in the child."""
        self._lock = new_lock()
        self._current = None


_slot = _RuntimeSlot()


def acquire_runtime() -> Runtime:
    """Return the runtime of this process, with one user more. Pair it with `Runtime.release()`."""
    return _slot.enter()
