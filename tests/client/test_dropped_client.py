"""The threads and devices of a client that is dropped while connected."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest

from rtvi_sync.client.life import Watch

pytestmark = pytest.mark.inside


class FakeSession:
    """A session that records how it was ended; calls for the I/O thread wait until the test runs them."""

    def __init__(self, *, live: bool) -> None:
        self.live = live
        self.calls: list[Any] = []
        self.ends: list[str] = []
        self.runtime = self.io = self

    def call(self, function: Any) -> None:
        self.calls.append(function)

    def end(self, info: Any) -> None:
        self.ends.append(info.initiator)


class FakeOperation:
    """An operation that records that it is stopped."""

    def __init__(self, session: FakeSession | None) -> None:
        self.session = session
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def watch_of(operation: Any) -> Watch:
    watch = Watch()
    watch.operation = weakref.ref(operation)
    return watch


def test_a_live_session_is_ended_on_the_io_thread() -> None:
    """A finalizer may run under any lock, so it ends nothing itself; a warning tells the application."""
    session = FakeSession(live=True)
    operation = FakeOperation(session)
    with pytest.warns(ResourceWarning, match="dropped while connected"):
        watch_of(operation).collected()
    assert operation.stopped, "nothing follows the session"
    assert session.ends == []
    session.calls.pop()()
    assert session.ends == ["client"]


@pytest.mark.parametrize("session", [FakeSession(live=False), None], ids=["ended", "none"])
def test_a_session_that_has_ended_is_left_alone(session: FakeSession | None) -> None:
    """A collected client without a live session ends nothing and warns of nothing; no attempt follows."""
    operation = FakeOperation(session)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch_of(operation).collected()
        Watch().collected()
    assert operation.stopped
    assert session is None or session.calls == []


def test_it_does_not_keep_the_operation() -> None:
    """The session's error refers to the client by its traceback: a strong reference would keep both."""
    operation = FakeOperation(None)
    gone = weakref.ref(operation)
    watch = watch_of(operation)
    del operation
    gc.collect()
    assert gone() is None
    watch.collected()
