"""Accepts connections and can end them all: what both servers of the embedded bot stand on."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.transports.tls import wrap_socket

logger: logging.Logger = logging.getLogger(__name__)


class TCPServer:
    """Serves every connection to a listening socket in a thread of its own, from its construction to `stop()`.

    Args:
        listening: the socket, with TLS or without; closed in the end. The TLS handshake is left to `serve`: a client
            that stalls it must not stop the others.
        role: of the threads that serve connections.
        serve: called with an accepted socket and its address; when it returns the socket is closed.
    """

    def __init__(self, listening: socket.socket, role: str, serve: Callable[[socket.socket, Any], object]) -> None:
        listening.setblocking(False)
        self.port: Final[int] = listening.getsockname()[1]
        self._listening = listening
        self._role = role
        self._serve = serve
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._selector = selectors.DefaultSelector()  # not on the thread: all that a server opens is open once it runs
        # Guards _open. Held for a moment by the threads of connections, the accepting one and the one that stops.
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        # Belongs to the accepting thread, and to stop() once that has ended.
        self._threads: list[threading.Thread] = []
        self._accept_thread = start_thread("bot-accept", self._accept)

    def stop(self, timeout: float) -> None:
        """Close the listening socket and cut every connection; returns when all threads have ended, or at the limit."""
        deadline = time.monotonic() + timeout
        self._wake_writer.close()
        self._accept_thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            cut(connection)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = [thread.name for thread in (self._accept_thread, *self._threads) if thread.is_alive()]
        if late:
            logger.warning("still running after %.1f s: %s", timeout, ", ".join(late))

    def _accept(self) -> None:
        with self._selector as selector, self._listening, self._wake_reader:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wake_reader in ready:
                    return
                try:
                    connection, address = self._accept_one()
                except OSError:
                    continue
                with self._lock:
                    self._open.add(connection)
                thread = start_thread(self._role, self._serve_connection, connection, address)
                self._threads = [*(old for old in self._threads if old.is_alive()), thread]

    def _accept_one(self) -> tuple[socket.socket, Any]:
        # Not the method of an SSL socket, which leaves behind the descriptor of a connection that is reset meanwhile.
        connection, address = socket.socket.accept(self._listening)
        connection.setblocking(True)
        if isinstance(self._listening, ssl.SSLSocket):
            connection = wrap_socket(
                connection, self._listening.context, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def _serve_connection(self, connection: socket.socket, address: Any) -> None:
        try:
            self._serve(connection, address)
        finally:
            with self._lock:
                self._open.remove(connection)
            connection.close()


def cut(connection: socket.socket) -> None:
    """Cut a connection from any thread: who reads or writes wakes up, and closes the socket itself."""
    # Not the method of an SSL socket, which would drop its TLS state under the thread that uses it.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
