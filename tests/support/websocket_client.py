"""A WebSocket connection under test, and the bot that it talks to."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial

import pytest

from rtvi_sync.concurrency.io_thread import IOThread
from rtvi_sync.protocol.states import CloseInfo
from rtvi_sync.transports.websocket_connection import WebSocketConnection
from tests.support.io_threads import on
from tests.support.slowness import GUARD
from tests.support.websocket import BINARY, MB, TEXT, Bot, tcp_pair


class Client:
    """A connection under test, and what its callbacks were called with."""

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


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def link(request, io):
    """Return a function that makes a client and its bot; both are closed after the test."""
    with contextlib.ExitStack() as stack:

        def make(*, start: bool = True, first: bytes = b"", **options) -> tuple[Client, Bot]:
            ours, theirs = tcp_pair(request.param)
            bot = Bot(theirs)
            stack.callback(theirs.close)
            client = Client(ours, io, **options)
            stack.callback(client.connection.close, 0.0)
            if start:
                client.connection.start(first)
            return client, bot

        yield make


def blocked(client: Client, size: int = 32 * MB) -> bytes:
    """Send more than the bot's system takes, so that the connection is blocked until the bot reads; what was sent."""
    payload = b"\xa5" * size
    client.connection.send(BINARY, payload)
    on(client.io, int)  # the main thread leaves the writing to the I/O thread
    assert client.connection._writer.blocked
    return payload
