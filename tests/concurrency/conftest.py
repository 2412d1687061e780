"""What several tests of this folder use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rtvi_sync.concurrency.worker_pool import WorkerPool
from tests.support.slowness import GUARD


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """Yield workers that are stopped after the test; all must end."""
    workers = WorkerPool()
    yield workers
    workers.close()
    for thread in workers.threads():
        thread.join(GUARD)
    assert workers.threads() == []
