"""A session of fake parts: no thread, and no client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from rtvi_sync import CloseInfo
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.session import session as module
from rtvi_sync.session.session import Phase, Session

SessionT = TypeVar("SessionT", bound=Session)


def bare_session(
    kind: type[SessionT], transport: Any, publisher: Any, *, runtime: Any = None, media: Any = None, **options: Any
) -> SessionT:
    """Return a session of this kind, whose end nothing but the test wants.

    Args:
        transport, publisher, runtime, media: its parts.
        options: as `Session` takes them.
    """
    bus: Any = SimpleNamespace(streams=SimpleNamespace(start_session=lambda: 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_sessions_of_transports", {})
        patch.setattr(module, "acquire_runtime", lambda: runtime)
        patch.setattr(module, "register_for_exit", lambda _: None)
        patch.setattr(module, "EventPublisher", lambda *_, **__: publisher)
        session = kind(transport, bus, media, Deadline(None), **options)
    session._closes_transport = True  # as if the transport had been told of the session
    return session


def fail_calls(session: Session, info: CloseInfo) -> None:
    """Do the first step of the end of a session, and no other."""
    session._fail_calls(info)


def enter(session: Session, phase: Phase) -> bool:
    """Move a session to a phase; return whether it has moved."""
    return session._enter(phase)


def time_to_close(session: Session, remaining: float) -> float:
    """Return how many seconds the transport may send if it has `remaining` seconds to close."""
    session._transport_deadline = Deadline(remaining)
    return session.time_to_close()
