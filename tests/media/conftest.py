"""Fixtures of the tests of media: a timer thread in manual time, and sessions without a transport."""

from __future__ import annotations

import os
import threading
import time

import pytest

from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support import part_probes, waiting
from tests.support.real_video import screen  # noqa: F401 - a fixture
from tests.support.slowness import GUARD
from tests.support.talk import ManualPacer, Talk


@pytest.fixture(autouse=True)
def opencv_was_not_tried(monkeypatch) -> None:
    """Reset OpenCV's load failure, so that one test's failure does not affect another test."""
    part_probes.forget_opencv(monkeypatch)


@pytest.fixture
def timer() -> ManualPacer:
    """Return a scheduler that runs steps when the test advances it."""
    return ManualPacer()


@pytest.fixture
def workers() -> WorkerPool:
    """Return workers, which `talk` ends."""
    return WorkerPool()


@pytest.fixture
def talk(timer, workers):
    """Make sessions; stop all of them after the test and check that no thread is left."""
    made: list[Talk] = []

    def make(**options) -> Talk:
        made.append(Talk(timer, workers, **options))
        return made[-1]

    before = set(threading.enumerate())
    yield make
    for each in made:
        each.manager.stop(GUARD)
    workers.close()
    deadline = time.monotonic() + GUARD
    stop_idle_threads()
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("rtvi-")]


@pytest.fixture
def until():
    """Return `until(condition)`, which lets other threads run until it holds."""
    return waiting.until


@pytest.fixture
def is_open():
    """Return `is_open(path)`, which returns whether this process holds a descriptor of that file."""

    def look(path) -> bool:
        wanted = os.stat(path)
        for fd in range(256):
            try:
                if os.path.samestat(os.fstat(fd), wanted):
                    return True
            except OSError:
                continue
        return False

    return look
