"""A channel of an I/O thread, for tests."""

from __future__ import annotations

import selectors
import socket
import threading

from rtvi_sync.concurrency.io_thread import IOThread
from tests.support.io_threads import on
from tests.support.slowness import GUARD

SELECTORS = [
    getattr(selectors, name)
    for name in ("EpollSelector", "KqueueSelector", "PollSelector", "SelectSelector")
    if hasattr(selectors, name)
]


class Line:
    """A channel that collects the bytes it reads, and the other end of its connection."""

    def __init__(self, io: IOThread, on_data=lambda line, data: None) -> None:
        self.io = io
        self.sock, self.peer = socket.socketpair()
        self.sock.setblocking(False)
        self.peer.settimeout(GUARD)
        self.received = b""
        self.on_data = on_data
        self.writable = 0
        self.failure: BaseException | None = None
        self.arrived = threading.Condition()

    def __enter__(self) -> Line:
        on(self.io, lambda: self.io.register(self))
        return self

    def __exit__(self, *_: object) -> None:
        on(self.io, self.end)
        self.peer.close()

    def end(self) -> None:
        if not self.io.unregister(self):
            self.sock.detach()
        self.sock.close()

    def fileno(self) -> int:
        return self.sock.fileno()

    def on_readable(self) -> None:
        data = self.sock.recv(65536)
        self.on_data(self, data)
        with self.arrived:
            self.received += data
            self.arrived.notify_all()
        if not data:
            self.io.unregister(self)

    def on_writable(self) -> None:
        with self.arrived:
            self.writable += 1
            self.arrived.notify_all()
        self.io.watch_writes(self, False)

    def on_failure(self, error: BaseException) -> None:
        with self.arrived:
            self.failure = error
            self.arrived.notify_all()
        self.end()

    def wait(self, condition) -> None:
        with self.arrived:
            assert self.arrived.wait_for(condition, GUARD)
