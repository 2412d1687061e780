"""Fixtures of several tests in this folder."""

from __future__ import annotations

import selectors
from collections.abc import Iterator

import pytest

from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support.slowness import GUARD

from .lines import SELECTORS
from .queues import end


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """Yield workers that are stopped after the test; all must end."""
    workers = WorkerPool()
    yield workers
    workers.close()
    end(workers)


@pytest.fixture(params=SELECTORS, ids=lambda kind: kind.__name__)
def io(request, monkeypatch):
    """Make an I/O thread on each kind of selector that the system has."""
    monkeypatch.setattr(selectors, "DefaultSelector", request.param)
    thread = IOThread()
    yield thread
    thread.close()
    thread.thread.join(GUARD)
    assert not thread.thread.is_alive()
