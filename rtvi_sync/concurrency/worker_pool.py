"""The threads that run handlers, and how they take turns with the one that reads.

Lanes that become ready on the io thread are drained by the thread that has it: before it would wait again it gives its
place to a worker that rests, and becomes a worker itself. So no event waits for a thread to wake up, and a handler that
blocks still keeps nobody from reading. Lanes that become ready on another thread, and all while nobody rests or there
is much to read, are drained by workers that are called for it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from .deadline import Deadline
from .io_thread import IOThread
from .latch import Notifier
from .lifecycle import NO_THREAD_PAUSE, fork_generation, name_thread, start_thread
from .serial_queue import SerialQueue

# An idle worker leaves after this many seconds; starting one costs about 100 microseconds.
IDLE_TIMEOUT = 5.0
# An io thread that had nothing to do for so many seconds is relieved. One that has much to do is to go on with it: a
# worker that it has called does all the queues that become ready meanwhile, and is not called for each.
_RESTED = 0.0008


class _Worker:
    """A thread that drains one queue after the other, and reads in between."""

    __slots__ = ("comes", "idle", "notifier", "thread")

    def __init__(self) -> None:
        self.idle = False  # True until it is called or sent home
        self.comes = False  # it is the one that is on its way
        self.notifier = Notifier()
        self.thread: threading.Thread | None = None


class WorkerPool:
    """The threads that drain queues: as many as handlers are running at once.

    One worker at a time is on its way. It takes the first queue that is ready, and calls the next worker if there are
    more: so a handler that blocks holds up no other queue, while those that return at once are run by one worker, and
    ten queues that become ready together do not wake ten threads.

    Args:
        io: with whom they take turns. None: with nobody.
    """

    def __init__(self, io: IOThread | None = None) -> None:
        # Guards all of these but the last. Any thread may hold it, for a few assignments; re-entrant, because a
        # finalizer may come in between.
        self._lock = threading.RLock()
        self._ready: OrderedDict[SerialQueue, None] = OrderedDict()
        self._coming = False  # somebody is on the way; if anything is ready, somebody is
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []  # some of them may have left
        self._closed = False
        self._io = io
        self._reader = _Worker()  # who is the io thread
        self._started = Notifier()  # rung when a worker has begun, or cannot begin
        self._generation = fork_generation()
        if io is not None:
            self._reader.thread = io.thread
            self._all.append(self._reader)
            io.reserve = self

    def submit(self, queue: SerialQueue) -> None:
        """Have `queue` drained, by a worker or, if this is the io thread, by this one. After `close()` too."""
        io = self._io
        # Without the lock: if the worker takes the queue in this very moment, it finds what was queued before.
        if queue in self._ready and self._coming:
            if io is not None and io.promotion_requested and io.looks_again:
                self._call_instead(io)  # for the second time: there is much to read
            return
        with self._lock:
            self._ready[queue] = None
            if io is not None and not self._coming and self._idle and io.looks_again and io.rested >= _RESTED:
                self._coming = io.promotion_requested = True
                return
        self._call_worker()

    def _call_instead(self, io: IOThread) -> None:
        """The io thread reads on: call a worker."""
        with self._lock:
            self._coming = io.promotion_requested = False
        self._call_worker()

    # -- the io thread ------------------------------------------------------------------------------------------------

    def promote(self) -> bool:
        """See `Followers`."""
        assert self._io is not None
        self._io.promotion_requested = False
        with self._lock:
            stand_in = self._idle.pop() if self._ready and self._idle else None
            if stand_in is None:  # a worker that was awake has taken what there was, or whoever rested has left
                self._coming = False
            else:
                assert stand_in.thread is not None
                self._reader.comes = True
                self._reader = stand_in
                self._io.hand_over(stand_in.thread)
                stand_in.idle = False  # last: from now on it may look
        if stand_in is None:
            self._call_worker()
            return False
        stand_in.notifier.notify_all()
        return True

    def work(self) -> None:
        """See `Followers`."""
        name_thread("worker")
        (worker,) = (worker for worker in self._workers() if worker.thread is threading.current_thread())
        self._work(worker)

    def replace(self, thread: threading.Thread) -> None:
        """See `Followers`."""
        reader = _Worker()
        reader.thread = thread
        with self._lock:
            # join() must not wait for the thread that sleeps.
            self._all = [reader if worker is self._reader else worker for worker in self._all]
            self._reader = reader

    def dismiss(self) -> None:
        """See `Followers`."""
        io, self._io = self._io, None
        if io is not None and io.promotion_requested:
            self._call_instead(io)

    # -- workers ------------------------------------------------------------------------------------------------------

    def _call_worker(self) -> None:
        """Have a worker come for what is ready, unless one is on its way."""
        try:
            with self._lock:
                if self._coming or not self._ready:
                    return
                self._coming = True
                worker = self._idle.pop() if self._idle else None
                if worker is not None:
                    worker.comes = True
                    worker.idle = False
            if worker is not None:
                worker.notifier.notify_all()
            else:
                self._start_worker()
        except BaseException:  # Ctrl-C: whether a worker comes is not known, so the next queue calls one
            with self._lock:
                self._coming = False
            raise

    def _start_worker(self) -> None:
        worker = _Worker()
        worker.comes = True
        with self._lock:
            self._all = [w for w in self._all if w.thread is None or w.thread.is_alive()]
            self._all.append(worker)
        try:
            start_thread("worker", self._run, worker)
        except RuntimeError:
            # The system has no thread to give just now: one that is busy takes what is ready when it has done, and the
            # io thread tries again. Or the interpreter is shutting down: the exit hook drains the queues itself.
            with self._lock:
                self._all.remove(worker)
                self._coming = False
            self._started.notify_all()
            io = self._io
            if io is not None:
                io.call(lambda: io.call_later(NO_THREAD_PAUSE, self._call_worker))

    def close(self) -> None:
        """Send idle workers home; busy ones leave when their queue is empty."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for worker in idle:
                worker.idle = False
        for worker in idle:
            worker.notifier.notify_all()

    def threads(self) -> list[threading.Thread]:
        """The threads that have not left yet. Waits for those that are on their way in, which takes a moment."""
        self._started.wait_for(lambda: all(worker.thread is not None for worker in self._workers()), Deadline(1.0))
        return [worker.thread for worker in self._workers() if worker.thread is not None and worker.thread.is_alive()]

    def _workers(self) -> list[_Worker]:
        with self._lock:
            return [*self._all]

    def _run(self, worker: _Worker) -> None:
        worker.thread = threading.current_thread()
        self._started.notify_all()
        self._work(worker)

    def _work(self, worker: _Worker) -> None:
        """Drain what is ready; then rest, or read, until there is more."""
        while fork_generation() == self._generation:  # else a handler forked: this is its child's only thread
            with self._lock:
                if worker.comes:
                    worker.comes = self._coming = False
                queue = self._ready.popitem(last=False)[0] if self._ready else None
                if queue is None:
                    if self._closed:
                        return
                    worker.idle = True
                    self._idle.append(worker)
            if queue is not None:
                self._call_worker()
                queue.drain()
                continue
            if not self._rest(worker):
                return
            if self._reader is worker:
                if self._io is None:
                    return
                name_thread("io")
                if not self._io.serve():
                    return
                name_thread("worker")

    def _rest(self, worker: _Worker) -> bool:
        """Wait to be called. False: for so long that the worker leaves."""
        if worker.notifier.wait_for(lambda: not worker.idle, Deadline(IDLE_TIMEOUT)):
            return True
        with self._lock:
            if worker in self._idle:  # still: it was not called in the very moment, nor Ctrl-C struck whoever did
                self._idle.remove(worker)
            return not worker.idle
