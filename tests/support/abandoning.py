"""Attempts that a test abandons, and the error that they raise then."""

from __future__ import annotations

import pytest

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from tests.support.slowness import GUARD


class AbandonedError(Exception):
    """The attempt of a test was abandoned."""


@pytest.fixture
def attempt():
    """Return an attempt without limit; `attempt.abort()` abandons it, `attempt.signal` goes to its steps."""
    return AbortController(Deadline(None), AbandonedError)


@pytest.fixture
def abandon(attempt):
    """Return `abandon(thread, reached)`, which aborts the attempt once `reached` is set; the thread raises why."""

    def call(thread, reached):
        assert reached.wait(GUARD)
        attempt.abort()
        with pytest.raises(AbandonedError):
            thread.get()

    return call
