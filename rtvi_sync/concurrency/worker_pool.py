"""The threads that run handlers and write to sinks, and their swap of roles with the I/O thread (leader/followers).

Queues that become ready on the I/O thread are drained by that thread: before it blocks in `select()`, it promotes an
idle worker to I/O thread and becomes a worker itself. So no event waits for a thread to wake up, and a handler that
blocks does not stop the reading. A worker is called instead if the queue becomes ready on another thread, if no worker
is idle, or if there is much to read.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable

from .clock import monotonic
from .deadline import Deadline
from .io_thread import IOThread
from .latch import Notifier
from .lifecycle import NO_THREAD_PAUSE, fork_generation, start_thread
from .lock import new_lock
from .serial_work import Drainable
from .timer_thread import ScheduledTask

# An idle worker ends after this many seconds. Starting one takes about 100 microseconds.
IDLE_TIMEOUT = 5.0
# The I/O thread swaps roles only if it was idle for this many seconds. If it has much to read, it calls one worker,
# which also drains the queues that become ready later, so they need no call.
_MIN_IDLE_TIME = 0.0004
# Seconds from one round of `submit_soon()` to the next. A worker that is woken for each audio frame of many sessions
# would cost more than the frames do, and a delay this short is not heard.
_ROUND = 0.0015


class _Worker:
    """A thread that drains queues, and may be the I/O thread in between."""

    __slots__ = ("called", "sleeper", "thread")

    def __init__(self) -> None:
        self.called = False  # True until it takes its first queue after the call
        # Guards nothing: the thread sleeps on it.
        self.sleeper = threading.Lock()
        self.sleeper.acquire()
        self.thread: threading.Thread | None = None

    def wake(self) -> None:
        """Wake the thread, or keep it from falling asleep. Never blocks."""
        try:  # noqa: SIM105 - suppress() takes longer than the rest, and each single event passes here
            self.sleeper.release()
        except RuntimeError:  # it is about to wake
            pass


class _Soon:
    """The work of `submit_soon()`. Several workers may drain it at once, because each piece may block its worker."""

    def __init__(self, drain: Callable[[], None]) -> None:
        self.drain = drain


class WorkerPool:
    """The threads that drain queues: as many as handlers and sinks block at once.

    At most one called worker has not taken a queue yet. It takes the first queue that is ready, and calls the next
    worker if there are more. So a handler that blocks delays no other queue, and one worker runs all handlers that
    return at once. Ten queues that become ready together do not wake ten threads. All this is true of sinks, too.

    Args:
        io: the I/O thread that swaps roles with the workers. None: no thread does.
    """

    def __init__(self, io: IOThread | None = None) -> None:
        # Guards all of these but the last. Any thread may hold it, for a few assignments. Re-entrant, because a
        # finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._ready: OrderedDict[Drainable, None] = OrderedDict()
        self._called = False  # a called worker has not taken a queue yet; True whenever a queue is ready
        self._idle: dict[_Worker, None] = {}  # they sleep; a thread that takes one out wakes it
        self._all: list[_Worker] = []  # some may have ended
        # The work for the next round; the object that drains it; whether a round is planned; the task of the I/O thread
        # that starts the round.
        self._later: OrderedDict[Drainable, None] = OrderedDict()
        self._soon = _Soon(self._drain_later)
        self._round_planned = False
        self._round: ScheduledTask | None = None
        self._closed = False
        self._round_began = -math.inf  # approximate: any thread writes it
        self._io = io
        self._leader = _Worker()  # the I/O thread
        self._started = Notifier()  # notified when a worker has started, or cannot start
        self._generation = fork_generation()
        if io is not None:
            self._leader.thread = io.thread
            self._all.append(self._leader)
            io.followers = self

    def submit(self, work: Drainable) -> None:
        """Schedule `work.drain()`, on a worker or, if this is the I/O thread, on this one. After `close()` too."""
        io = self._io
        # Without the lock, because a worker that takes the queue at this moment finds the item that was queued before.
        if work in self._ready and self._called:
            if io is not None and io.promotion_requested and io.will_recheck:
                self._call_worker_instead(io)  # the second item since the last select(): there is much to read
            return
        with self._lock:
            self._ready[work] = None
            if (
                io is not None
                and not self._called
                and self._idle
                and io.will_recheck
                and io.idle_time >= _MIN_IDLE_TIME
            ):
                self._called = io.promotion_requested = True
                return
        self._call_worker()

    def submit_soon(self, work: Drainable) -> None:
        """Schedule `work.drain()`: at once if no such work has started within `_ROUND`, else in the next round.

        So work that becomes ready thousands of times a second, as the sinks of many sessions do, wakes a worker a few
        hundred times.
        """
        io = self._io
        if work in self._later:
            return
        if io is None or not (self._round_planned or monotonic() - self._round_began < _ROUND):
            self._round_began = monotonic()
            self.submit(work)
            return
        planned = False
        try:
            with self._lock:
                self._later[work] = None
                plans, self._round_planned = not self._round_planned, True
            if plans:
                self._plan_round(io)
            planned = self._io is io
        finally:  # the I/O thread starts no round if it has ended, or if Ctrl-C interrupted the planning
            if not planned:
                self._submit_later()

    def _submit_later(self) -> None:
        """Schedule the work of the next round now, because no round will start."""
        with self._lock:
            self._ready.update(self._later)
            self._later.clear()
            self._round_planned = False
        self._call_worker()

    def _plan_round(self, io: IOThread) -> None:
        """Have the I/O thread call a worker for the work of the next round."""
        with contextlib.suppress(RuntimeError):  # its scheduler is closed
            if self._round is None:
                self._round = io.scheduler.add(self._begin_round, math.inf)
            self._round.reschedule(self._round_began + _ROUND)

    def _begin_round(self, now: float) -> float:
        """Call a worker for the waiting work, and look again in the next round: a sink may block that worker."""
        with self._lock:
            waits = self._round_planned = bool(self._later)
            if waits:
                self._round_began = now
                self._ready[self._soon] = None
        if waits:
            self._call_worker()
        return now + _ROUND if waits else math.inf

    def _call_worker_instead(self, io: IOThread) -> None:
        """Call a worker, because the I/O thread continues to read."""
        with self._lock:
            self._called = io.promotion_requested = False
        self._call_worker()

    # -- the I/O thread -----------------------------------------------------------------------------------------------

    def promote(self) -> bool:
        """See `Followers`."""
        assert self._io is not None
        self._io.promotion_requested = False
        with self._lock:
            follower = self._idle.popitem()[0] if self._ready and self._idle else None
            if follower is None:  # another worker has taken the queue, or the idle worker has ended
                self._called = False
            else:
                assert follower.thread is not None
                self._leader.called = True
                self._leader = follower
                self._io.set_thread(follower.thread)
        if follower is None:
            self._call_worker()
            return False
        follower.wake()
        return True

    def work(self) -> None:
        """See `Followers`."""
        (worker,) = (worker for worker in self._workers() if worker.thread is threading.current_thread())
        self._work(worker)

    def detach(self) -> None:
        """See `Followers`."""
        io, self._io = self._io, None
        if io is not None and io.promotion_requested:
            self._call_worker_instead(io)
        self._submit_later()

    # -- workers ------------------------------------------------------------------------------------------------------

    def _call_worker(self) -> None:
        """Call a worker for the queues that are ready, unless one was called."""
        try:
            with self._lock:
                if self._called or not self._ready:
                    return
                self._called = True
                worker = self._idle.popitem()[0] if self._idle else None
                if worker is not None:
                    worker.called = True
            if worker is not None:
                worker.wake()
            else:
                self._start_worker()
        except BaseException:  # after Ctrl-C it is unknown whether a worker runs, so the next queue calls one
            with self._lock:
                self._called = False
            raise

    def _start_worker(self) -> None:
        worker = _Worker()
        worker.called = True
        with self._lock:
            self._all = [w for w in self._all if w.thread is None or w.thread.is_alive()]
            self._all.append(worker)
        try:
            start_thread("worker", self._run, worker)
        except RuntimeError:
            # If the system cannot start a thread, a busy worker takes the queue later, and the I/O thread tries again.
            # If the interpreter is shutting down, the exit hook drains the queues.
            with self._lock:
                self._all.remove(worker)
                self._called = False
            self._started.notify_all()
            io = self._io
            if io is not None:
                io.call(lambda: io.call_later(NO_THREAD_PAUSE, self._call_worker))

    def close(self) -> None:
        """End idle workers; busy workers end when no queue is ready. Does not wait."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for worker in idle:
            worker.wake()

    def threads(self) -> list[threading.Thread]:
        """Return the threads that have not ended. Waits up to 1 s for workers that are being started."""
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
        """Drain the queues that are ready; then wait for more, or become the I/O thread."""
        while True:
            with self._lock:
                if worker.called:
                    worker.called = self._called = False
                queue = self._ready.popitem(last=False)[0] if self._ready else None
                more = bool(self._ready)
                if queue is None:
                    self._idle[worker] = None
            if queue is not None:
                if more:
                    self._call_worker()
                queue.drain()
                if fork_generation() != self._generation:
                    return  # a handler has forked, and this is the child's only thread
                continue
            if not self._sleep(worker):
                return
            if self._leader is worker and (self._io is None or not self._io.serve()):
                return

    def _drain_later(self) -> None:
        """Drain the work of a round. If this worker is blocked, `_begin_round()` calls another one for the rest."""
        while True:
            with self._lock:
                work = self._later.popitem(last=False)[0] if self._later else None
            if work is None:
                return
            work.drain()
            if fork_generation() != self._generation:
                return

    def _sleep(self, worker: _Worker) -> bool:
        """Block until the worker is called; return False if it is to end, after `close()` or `IDLE_TIMEOUT`."""
        woken = not self._closed and worker.sleeper.acquire(timeout=IDLE_TIMEOUT)
        with self._lock:
            if worker not in self._idle:
                return True
            del self._idle[worker]  # it was not called; if it was woken, that was for an earlier call
            return woken
