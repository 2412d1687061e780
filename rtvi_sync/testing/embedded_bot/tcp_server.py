"""TCP server with a thread for each connection, shared by both servers of the embedded bot."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Final

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.lifecycle import NoThreadError, start_thread, what_to_do
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.net.tls import wrap_socket

from ...concurrency.clock import monotonic

logger: logging.Logger = package_logger(__name__)

# Seconds between two looks whether another thread has closed a socket.
_SLICE = 0.5
# Seconds between two attempts to accept a connection while the process can open no more files.
_PAUSE = 0.1


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one.

    Raises:
        OSError: the port is taken, or the host is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=128)


class TCPServer:
    """A server that runs from its construction to `stop()`, with a thread for each connection.

    Args:
        listening: the listening socket, with TLS or without; closed at the end. The TLS handshake is left to `serve`,
            because a client that stalls it must not block the others.
        role: of the threads that serve connections.
        serve: called with an accepted socket and its address; when it returns, the socket is closed.
    """

    def __init__(self, listening: socket.socket, role: str, serve: Callable[[socket.socket, Any], object]) -> None:
        listening.setblocking(False)
        if isinstance(listening, ssl.SSLSocket):  # for the caller's other connections it is as good as the usual class
            listening.context.sslsocket_class = SharedTLSSocket
        self.port: Final[int] = listening.getsockname()[1]
        self._listening = listening
        self._role = role
        self._serve = serve
        self._wake_reader, self._wake_writer = socket.socketpair()
        # Made here, not on the thread, so that all descriptors are open when the constructor returns.
        self._selector = selectors.DefaultSelector()
        # Guards _open. Held for a moment by the threads of connections, the accepting one and the one that stops.
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        # Used by the accepting thread only, and by stop() after that thread has ended.
        self._threads: list[threading.Thread] = []
        self._accept_thread = start_thread("bot-accept", self._accept)

    def stop(self, timeout: float) -> None:
        """Close the listening socket and cut every connection; block until all threads end, up to `timeout` seconds."""
        deadline = monotonic() + timeout
        self._wake_writer.close()
        self._accept_thread.join(max(0.0, deadline - monotonic()))
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            cut(connection)
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        late = [thread.name for thread in (self._accept_thread, *self._threads) if thread.is_alive()]
        if late:
            logger.warning("Threads of the bot still run after %.1f s: %s", timeout, ", ".join(late))

    def _accept(self) -> None:
        with self._selector as selector, self._listening, self._wake_reader:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._wake_reader, selectors.EVENT_READ)
            lacks_descriptors = False
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wake_reader in ready:
                    return
                try:
                    connection, address = self._accept_one()
                except OSError as error:
                    if advice := what_to_do(error):
                        if not lacks_descriptors:
                            logger.warning("The bot cannot accept a connection, which waits: %s. %s", error, advice)
                        lacks_descriptors = True
                        self._pause()
                    continue
                lacks_descriptors = False
                with self._lock:
                    self._open.add(connection)
                try:
                    thread = start_thread(self._role, self._serve_connection, connection, address)
                except NoThreadError as error:
                    logger.warning("The bot cannot serve a connection, which it closes: %s", error)
                    self._close(connection)
                    continue
                self._threads = [*(old for old in self._threads if old.is_alive()), thread]

    def _pause(self) -> None:
        """Block for `_PAUSE` seconds, or until `stop()`: `select()` would return at once, for the same connection."""
        self._wake_reader.settimeout(_PAUSE)
        with contextlib.suppress(TimeoutError):
            self._wake_reader.recv(1)

    def _accept_one(self) -> tuple[socket.socket, Any]:
        # SSLSocket.accept() would leak the descriptor of a connection that is reset meanwhile.
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
            self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.remove(connection)
        connection.close()


class SharedTLSSocket(ssl.SSLSocket):
    """A TLS connection that one thread reads while others write.

    Two threads that are in OpenSSL with one connection may crash the process (python/cpython#124984, #151508).
    Here only one is in it at a time, and none while it waits.
    """

    _lock: threading.Lock | None = None
    _timeout: float | None = None

    def do_handshake(self, block: bool = False) -> None:
        """Do the handshake, on the only thread that has the connection yet."""
        super().do_handshake(block)
        self._timeout = self.gettimeout()
        super().settimeout(0.0)
        # Guards OpenSSL's object. Held by a reading or writing thread, never while that waits.
        self._lock = threading.Lock()

    def settimeout(self, value: float | None) -> None:
        """Set the limit of one read or write; None: no limit."""
        if self._lock is None:
            super().settimeout(value)
        else:
            self._timeout = value

    def setblocking(self, flag: bool) -> None:
        """Set no limit, or one of 0."""
        self.settimeout(None if flag else 0.0)

    def gettimeout(self) -> float | None:
        """Return that limit."""
        return super().gettimeout() if self._lock is None else self._timeout

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read up to `len` bytes: all reading methods do it here."""
        return self._when_ready(super().read, len, buffer)

    def send(self, data: Any, flags: int = 0) -> int:
        """Write what there is room for: `sendall()` does it here, too."""
        written: int = self._when_ready(super().send, data, flags)
        return written

    def _when_ready(self, call: Callable[..., Any], *args: Any) -> Any:
        if self._lock is None:
            return call(*args)
        deadline = Deadline(self._timeout)
        while True:
            try:
                with self._lock:
                    return call(*args)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                if self._timeout == 0.0:
                    raise
                event = selectors.EVENT_READ if isinstance(error, ssl.SSLWantReadError) else selectors.EVENT_WRITE
            if deadline.expired:
                raise TimeoutError("the peer neither sends nor takes anything")
            with selectors.DefaultSelector() as selector:
                # In slices, because another thread may close the socket, which wakes no selector. Then this raises.
                selector.register(self, event)
                selector.select(deadline.at_most(_SLICE))


def cut(connection: socket.socket) -> None:
    """Cut a connection from any thread: this wakes the thread that reads or writes, which closes the socket."""
    # SSLSocket.shutdown() would drop the TLS state that the other thread is using.
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
