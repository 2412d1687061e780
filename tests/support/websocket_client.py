"""A WebSocket connection under test, and the bot that it talks to."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial
from typing import Any

import pytest

from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.protocol.states import CloseInfo
from rtvi_sync.transports.websocket_connection import WebSocketConnection
from tests.support.io_threads import on
from tests.support.slowness import GUARD
from tests.support.websocket import BINARY, MB, TEXT, Bot, tcp_pair


class Client:
    """A connection under test, and the calls of its callbacks."""

    def __init__(self, sock: socket.socket, io: IOThread, on_message=None, on_closed=None, **limits) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.ends: list[CloseInfo] = []
        self._changed = threading.Condition()
        self._on_message, self._on_closed = on_message, on_closed
        self.io = io
        self.connection = WebSocketConnection(
            sock,
            io,
            on_messages={opcode: partial(self._messages, opcode) for opcode in (TEXT, BINARY)},
            on_closed=self._closed,
            max_message_bytes=limits.get("max_message_bytes", 16 * MB),
            max_queued_bytes=limits.get("max_queued_bytes", 64 * MB),
            stall_timeout=limits.get("stall_timeout", GUARD),
            ping_interval=limits.get("ping_interval"),
            ping_timeout=limits.get("ping_timeout", GUARD),
        )

    def _messages(self, opcode: int, payloads: list[bytes]) -> None:
        assert self.io.is_current
        for payload in payloads:
            if self._on_message is not None:
                self._on_message(self, opcode, payload)
            with self._changed:
                self.messages.append((opcode, payload))
                self._changed.notify_all()

    def _closed(self, info: CloseInfo) -> None:
        assert self.io.is_current
        with self._changed:
            self.ends.append(info)
            self._changed.notify_all()
        if self._on_closed is not None:
            self._on_closed(self)

    @property
    def is_blocked(self) -> bool:
        """Whether the connection waits for the bot to read."""
        return self.connection._writer.blocked

    @property
    def watches_writes(self) -> bool:
        """Whether the I/O thread waits for room in the socket."""
        return on(self.io, lambda: self.connection._watching_writes)

    @property
    def is_closing(self) -> bool:
        """Whether a close frame was queued."""
        return self.connection._writer.closing is not None

    @property
    def frames_waiting(self) -> int:
        """How many frames are queued."""
        return len(self.connection._writer._queue)

    @property
    def audio_waiting(self) -> float:
        """How many seconds of audio count as queued."""
        return self.connection._writer._queued_audio

    @property
    def write_lock(self) -> threading.Lock:
        """The lock of a thread that writes."""
        return self.connection._writer.lock

    def interrupt_write(self, function) -> None:
        """Call a function once on the thread that writes next, when it has written and has not looked for more."""
        writer: Any = self.connection._writer
        waiting = [function]
        write = writer._write
        writer.is_plain = writer._direct = False  # or the frame would be written at once

        def interrupted() -> bool:
            done = write()
            if waiting:
                waiting.pop()()
            return done

        writer._write = interrupted

    def received(self, count: int) -> list[tuple[int, bytes]]:
        """Return the first `count` messages, once they are there."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count or self.ends, GUARD)
            assert len(self.messages) >= count, self.ends
            return self.messages[:count]

    def ended(self) -> CloseInfo:
        """Return how the connection ended, once it has."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.ends, GUARD), "the connection does not end"
        on(self.io, int)
        assert len(self.ends) == 1
        assert self.connection.info is self.ends[0]
        return self.ends[0]


#: Marks a test whose connections are encrypted once, in addition to the plain run, to cover the differences of TLS.
over_tls_too = pytest.mark.parametrize("link", [False, True], ids=["plain", "tls"], indirect=True)


@pytest.fixture
def link(request, io):
    """Return a function that makes a client and its bot; both are closed after the test."""
    tls = getattr(request, "param", False)
    with contextlib.ExitStack() as stack:

        def make(*, start: bool = True, first: bytes = b"", **options) -> tuple[Client, Bot]:
            ours, theirs = tcp_pair(tls)
            bot = Bot(theirs)
            stack.callback(theirs.close)
            client = Client(ours, io, **options)
            stack.callback(client.connection.close, 0.0)
            if start:
                client.connection.start(first)
            return client, bot

        yield make


def hold_up_after_reading(monkeypatch) -> tuple[threading.Event, threading.Event]:
    """Hold up the first look at a silent line that was pinged, just after it has read the arrived data.

    Returns:
        An event that is set then, and one that lets the look go on.
    """
    reached, go_on = threading.Event(), threading.Event()
    catch_up = WebSocketConnection._catch_up

    def held_up_once(connection: WebSocketConnection) -> float:
        now = catch_up(connection)
        if connection._ping is not None and not reached.is_set():
            reached.set()
            assert go_on.wait(GUARD)
        return now

    monkeypatch.setattr(WebSocketConnection, "_catch_up", held_up_once)
    return reached, go_on


def blocked(client: Client, size: int = 32 * MB) -> bytes:
    """Send more than the bot's system takes, so that the connection is blocked until the bot reads; return the data."""
    payload = b"\xa5" * size
    client.connection.send(BINARY, payload)
    on(client.io, int)  # the main thread leaves the writing to the I/O thread
    assert client.is_blocked
    return payload
