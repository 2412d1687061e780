"""The session of a client that is dropped while connected."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest

from rtvi_sync.client.session_manager import SessionWatch

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


def watch_of(session: Any) -> SessionWatch:
    watch = SessionWatch()
    watch.watch(session)
    return watch


def test_a_live_session_is_ended_on_the_io_thread() -> None:
    """A finalizer may run under any lock, so it ends nothing itself; a warning tells the application."""
    session = FakeSession(live=True)
    with pytest.warns(ResourceWarning, match="dropped while connected"):
        watch_of(session).collected()
    assert session.ends == []
    session.calls.pop()()
    assert session.ends == ["client"]


def test_a_session_that_has_ended_is_left_alone() -> None:
    """A collected client without a live session ends nothing and warns of nothing."""
    session = FakeSession(live=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch_of(session).collected()
        SessionWatch().collected()
    assert session.calls == []


def test_it_does_not_keep_the_session() -> None:
    """The session's error refers to the client by its traceback: a strong reference would keep both."""
    session = FakeSession(live=True)
    session.runtime = session.io = None  # type: ignore[assignment]
    gone = weakref.ref(session)
    watch = watch_of(session)
    del session
    gc.collect()
    assert gone() is None
    watch.collected()
