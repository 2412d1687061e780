"""The threads that all sessions of the process share, and who counts them."""

from __future__ import annotations

import threading
import time

from .deadline import Deadline, join_thread
from .io_thread import IOThread
from .lifecycle import fork_generation, register_for_fork, register_idle
from .timer_thread import Pacer
from .worker_pool import LaneWorkers

# A hub that nobody uses waits so many seconds for somebody, because to start its threads costs as much as to connect.
IDLE_TIMEOUT = 5.0


class Hub:
    """The io thread, the lane workers and the pacer of the sessions that are live now. Made by `acquire_hub()`."""

    def __init__(self) -> None:
        self.io: IOThread = IOThread()
        self.workers: LaneWorkers = LaneWorkers(self.io)
        self.pacer: Pacer = Pacer()
        # These three are guarded by the lock of the one `_HubSlot`.
        self.users: int = 0
        self.unused_since: float = 0.0
        self.watched: bool = False  # a timer of the io thread will look whether it is used
        self._generation = fork_generation()

    def release(self) -> None:
        """One session less. Never waits. A hub that nobody uses for a while is retired: its threads end."""
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
        self.pacer.close()
        self.workers.close()
        self.io.close()

    def join(self, deadline: Deadline) -> None:
        """Wait for the threads of a retired hub, save the calling one."""
        for thread in (self.io.thread, *self.workers.threads()):
            if thread is not threading.current_thread():
                join_thread(thread, deadline)
        self.pacer.join(deadline.sooner(5.0))


class _HubSlot:
    """Where the current hub is found."""

    def __init__(self) -> None:
        # Guards `_current` and the `users` of every hub. Any thread may hold it, for a few assignments. A hub is made
        # outside of it, because that starts a thread: where gevent came after this lock, it would be held while
        # greenlets take turns, and the second one to ask for it would stop them all. Re-entrant, because a finalizer
        # may come in between.
        self._lock = threading.RLock()
        self._current: Hub | None = None
        register_for_fork(self)
        register_idle(self)

    def enter(self) -> Hub:
        with self._lock:
            if self._current is not None:
                self._current.users += 1
                return self._current
        spare: Hub | None = Hub()
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

    def leave(self, hub: Hub) -> bool:
        """One user less; True if somebody has to begin to look after `hub`."""
        with self._lock:
            if hub.users:
                hub.users -= 1
            if hub.users:
                return False
            hub.unused_since = time.monotonic()
            before, hub.watched = hub.watched, True
            return not before

    def retire_unused(self, hub: Hub) -> float | None:
        """Retire `hub` if nobody has used it for a while; how many seconds that may take yet, None if it is used."""
        with self._lock:
            if hub.users or self._current is not hub:
                hub.watched = False
                return None
            moment = hub.unused_since + IDLE_TIMEOUT - time.monotonic()
            if moment > 0:
                return moment
            # Retired for good: the next session makes a new hub and cannot meet threads that are on their way out.
            self._current = None
        hub.retire()
        return None

    def send_home(self, deadline: Deadline) -> None:
        """Retire a hub that nobody uses now."""
        with self._lock:
            hub = self._current
            if hub is None or hub.users:
                return
            self._current = None
        hub.retire()
        hub.join(deadline)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._current = None


_slot = _HubSlot()


def acquire_hub() -> Hub:
    """The hub of this process, with one user more; pair it with `Hub.release()`."""
    return _slot.enter()
