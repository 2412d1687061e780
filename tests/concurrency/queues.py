"""Items that tests post to serial queues."""

from __future__ import annotations

import threading

from rtvi_sync.concurrency.serial_queue import SerialQueue
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support.slowness import GUARD


class Blocker:
    """An item that blocks until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.let_go.wait(GUARD)


def drained(queue: SerialQueue, workers: WorkerPool) -> None:
    """Wait until all that is queued in `queue` now has run."""
    done = threading.Event()
    queue.post(done.set, workers, force=True)
    assert done.wait(GUARD)


def end(workers: WorkerPool) -> None:
    """Wait until all threads of a closed pool have ended; a thread that ends may call one worker more."""
    while threads := workers.threads():
        for thread in threads:
            thread.join(GUARD)
            assert not thread.is_alive()
