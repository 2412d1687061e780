"""How many calls into the package an event and a `connect()` take."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import rtvi_sync
from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.threads import end_idle_threads

pytestmark = pytest.mark.matrix

#: Calls of all threads, from the bytes in the socket until every thread waits again: 45, and half as many more.
AN_EVENT: Final = 67
#: Calls of all threads until `connect()` on the main thread returns, in a client that was connected before: 604, and
#: half as many more.
A_CONNECT: Final = 900

SAID: Final = {"text": "Hello", "final": True, "timestamp": "2026-01-01T12:00:00.000+00:00", "user_id": "user"}

_PACKAGE: Final = str(Path(rtvi_sync.__file__).parent)
_BOT: Final = str(Path(_PACKAGE, "testing"))


@contextmanager
def counting() -> Iterator[list[str]]:
    """Yield the calls of all threads that start from now on."""
    calls: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_PACKAGE) and not code.co_filename.startswith(_BOT):
            calls.append(f"{code.co_filename.removeprefix(_PACKAGE)}:{frame.f_lineno} {code.co_name}")

    end_idle_threads()  # a thread that runs is not watched
    threading.setprofile(watch)
    try:
        yield calls
    finally:
        threading.setprofile(None)
        end_idle_threads()


def client_of(url: str) -> RTVIClient:
    """Return a client without devices."""
    return RTVIClient(transport=WebSocketTransport(url), enable_mic=False, speaker=NullSink())


def test_an_event() -> None:
    """A single event takes few calls of all threads together, including their wake-ups."""
    handled = threading.Semaphore(0)
    events = 50
    with counting() as calls, EmbeddedBot() as bot, client_of(bot.ws_url) as client:
        client.on("user-transcription", lambda _: handled.release())
        session = bot.wait_for_session()
        for number in range(1 + events):
            session.send({"label": "rtvi-ai", "type": "user-transcription", "data": SAID})
            assert handled.acquire(timeout=GUARD)
            if number == 0:  # it imports, and finds no worker to swap roles with
                calls.clear()
        count = len(calls) / events

    assert AN_EVENT / 3 < count <= AN_EVENT, count


def test_a_connect(url: str) -> None:
    """`connect()` on the main thread takes few calls, once all modules are imported and the threads exist."""
    counts = []
    with counting() as calls:
        client = client_of(url)
        for _ in range(7):
            calls.clear()
            sys.setprofile(threading.getprofile())
            try:
                client.connect()
            finally:
                sys.setprofile(None)
            counts.append(len(calls))
            client.disconnect()
        client.close()

    # A busy machine adds calls.
    assert A_CONNECT / 2 < min(counts) <= A_CONNECT, counts
