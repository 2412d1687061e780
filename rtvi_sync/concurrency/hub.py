"""The threads that all sessions of the process share, and who counts them."""

from __future__ import annotations

import threading
from collections.abc import Collection

from .deadline import Deadline, join_thread
from .io_thread import IOThread
from .lanes import LaneWorkers
from .lifecycle import fork_generation, register_for_fork
from .pacer import Pacer


class Hub:
    """The io thread, the lane workers and the pacer of the sessions that are live now. Made by `acquire_hub()`."""

    def __init__(self) -> None:
        self.io: IOThread = IOThread()
        self.workers: LaneWorkers = LaneWorkers()
        self.pacer: Pacer = Pacer()
        self.users = 0  # guarded by the lock of the one `_HubSlot`
        self._generation = fork_generation()

    def release(self) -> bool:
        """One session less. The last one retires the hub (True): its threads end, and `join()` waits for them."""
        if self._inherited or not _slot.leave(self):
            return False
        self.retire()
        return True

    def retire(self) -> None:
        """Nobody uses it (any more): let its threads end."""
        self.pacer.close()
        self.workers.close()
        self.io.close()

    def join(self, deadline: Deadline, leave: Collection[threading.Thread] = ()) -> list[threading.Thread]:
        """Wait for the threads of a retired hub. Returns those still alive.

        Args:
            deadline: of it all.
            leave: threads that are not waited for; the calling one is not, either.
        """
        if self._inherited:
            return []
        left = (threading.current_thread(), *leave)
        alive = [
            thread
            for thread in (self.io.thread, *self.workers.threads())
            if thread not in left and not join_thread(thread, deadline)
        ]
        self.pacer.join(deadline.sooner(5.0))
        return alive

    @property
    def _inherited(self) -> bool:
        """True in a forked child: the threads are the parent's, and the locks may be held for ever."""
        return self._generation != fork_generation()


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
        with self._lock:
            hub.users -= 1
            if hub.users:
                return False
            # Retired for good: the next session makes a new hub and cannot meet threads that are on their way out.
            self._current = None
            return True

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._current = None


_slot = _HubSlot()


def acquire_hub() -> Hub:
    """The hub of this process, with one user more; pair it with `Hub.release()`."""
    return _slot.enter()
