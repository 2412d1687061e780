"""The TCP server of the embedded bot: a thread for each connection, and an end of all of them."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync.concurrency.lifecycle import NoThreadError
from rtvi_sync.testing.embedded_bot import server as server_module
from rtvi_sync.testing.embedded_bot.server import SharedTLSSocket, TCPServer
from tests.support import limits, loopback
from tests.support.slowness import GUARD, takes
from tests.support.threads import running, thread_names
from tests.support.waiting import until

pytestmark = pytest.mark.inside


def serving(serve: Callable[[socket.socket, Any], object]) -> TCPServer:
    return TCPServer(socket.create_server(("127.0.0.1", 0)), "bot-test", serve)


def connect(server: TCPServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), GUARD)


def echo(connection: socket.socket, _: Any) -> None:
    while part := connection.recv(100):
        connection.sendall(part)


def test_connections_are_served_beside_each_other() -> None:
    """A client that says nothing does not hold up the next one."""
    server = serving(echo)
    try:
        with connect(server), connect(server) as second:
            second.sendall(b"hello")
            assert second.recv(100) == b"hello"
    finally:
        server.stop(GUARD)


def test_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A connection waits for a free descriptor; the server retries now and then, and logs it once."""
    failures: list[float] = []
    real, are_left = socket.socket.accept, threading.Event()

    def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
        if are_left.is_set():
            return real(listening)
        failures.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    server = serving(echo)
    try:
        with connect(server) as client:
            until(lambda: len(failures) >= 3)
            assert failures[2] - failures[0] >= 2 * limits.value_of("server_pause") * 0.9  # the clocks of both differ
            are_left.set()
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
    finally:
        server.stop(GUARD)
    (message,) = caplog.messages
    assert "Too many open files" in message
    assert "raise the limit of open files" in message


def test_a_stop_while_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """stop() does not wait for the next attempt to accept a connection."""
    failed = threading.Event()

    def accept(_: socket.socket) -> tuple[socket.socket, Any]:
        failed.set()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", accept)
    limits.patch(monkeypatch, server_pause=1000.0)
    server = serving(echo)
    with connect(server):
        assert failed.wait(GUARD)
        server.stop(GUARD)
        assert not [name for name in thread_names() if name.startswith("rtvi-bot-accept-")]


def test_a_thread_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A connection for which no thread can be started is closed, and later ones are served."""
    server = serving(echo)

    def none(*_: object) -> threading.Thread:
        raise NoThreadError("too many")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(server_module, "start_thread", none)
            with connect(server) as client:
                assert client.recv(100) == b""
        with connect(server) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
    finally:
        server.stop(GUARD)
    assert "too many" in caplog.text


def test_a_connection_is_closed_when_it_was_served() -> None:
    """The client sees the end of the stream."""
    server = serving(lambda connection, _: connection.sendall(b"bye"))
    try:
        with connect(server) as client:
            assert client.recv(100) == b"bye"
            assert client.recv(100) == b""
    finally:
        server.stop(GUARD)


def test_stop_cuts_what_is_open() -> None:
    """Threads that read wake and end; a new connection is refused."""
    server = serving(echo)
    with connect(server) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        with takes(5.0):
            server.stop(GUARD)
        assert client.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(server)


def test_a_handler_that_does_not_return(caplog: pytest.LogCaptureFixture) -> None:
    """`stop()` returns at its timeout and names the thread in the log."""
    entered, release = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        entered.set()
        release.wait(GUARD)

    server = serving(hang)
    with connect(server), caplog.at_level(logging.WARNING):
        assert entered.wait(GUARD)
        server.stop(0.1)
        assert "still run after 0.1 s" in caplog.text
        assert "bot-test" in caplog.text
        release.set()


class Watched:
    """OpenSSL's object of a connection, which notes whether two threads are in it at once."""

    def __init__(self, watched: Any) -> None:
        self._watched = watched
        self._free = threading.Lock()
        self.calls: list[str] = []
        self.met = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._watched, name)

    def read(self, *args: Any) -> Any:
        return self._call("read", *args)

    def write(self, *args: Any) -> Any:
        return self._call("write", *args)

    def _call(self, name: str, *args: Any) -> Any:
        alone = self._free.acquire(blocking=False)
        self.met = self.met or not alone
        self.calls.append(name)
        threading.Event().wait(0.02)  # so that another thread can enter, if nothing keeps it out
        try:
            return getattr(self._watched, name)(*args)
        finally:
            if alone:
                self._free.release()


@contextlib.contextmanager
def tls_connection(serve: Callable[[Any], object]) -> Iterator[ssl.SSLSocket]:
    """Yield a client's end of a TLS connection; `serve` has the server's, after the handshake."""
    listening = loopback.serving().wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)

    def shake_hands(connection: Any, _: Any) -> None:
        connection.do_handshake()
        serve(connection)

    server = TCPServer(listening, "bot-test", shake_hands)
    context = loopback.trusting()
    context.sslsocket_class = SharedTLSSocket  # two threads of a test may use the client's end, too
    try:
        with context.wrap_socket(connect(server), server_hostname="127.0.0.1") as client:
            yield client
    finally:
        server.stop(GUARD)


def test_one_thread_at_a_time_is_in_a_tls_connection() -> None:
    """While one thread reads and another writes, OpenSSL never has both, and all bytes arrive."""
    said = bytes(range(256)) * 4_000
    found: list[Any] = []

    def serve(connection: Any) -> None:
        connection._sslobj = watched = Watched(connection._sslobj)
        heard = bytearray()
        with running(lambda: connection.sendall(said)):
            while len(heard) < len(said):
                heard += connection.recv(65_536)
        found.extend([watched.met, {*watched.calls}, bytes(heard) == said])
        connection.sendall(b"!")

    with tls_connection(serve) as client, running(lambda: read(client, len(said) + 1)) as reading:
        client.sendall(said)
        assert reading.get() == said + b"!"
    assert found == [False, {"read", "write"}, True]


def test_the_limit_of_a_tls_connection() -> None:
    """A read stops after the latest time limit, and a partial record does not block it."""
    found: list[str] = []

    def serve(connection: Any) -> None:
        connection.settimeout(0.05)
        try:
            connection.recv(1)
        except TimeoutError:
            found.append("late")
        connection.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            connection.recv(1)
        connection.setblocking(True)
        found.append(connection.recv(1).decode())
        connection.sendall(b"!")

    with tls_connection(serve) as client:
        until(lambda: found)
        client.sendall(b"?")
        assert client.recv(1) == b"!"
    assert found == ["late", "?"]


def test_a_tls_connection_that_another_thread_closes() -> None:
    """The thread that reads it ends, with an error or with the end of the stream."""
    ended = threading.Event()

    def serve(connection: Any) -> None:
        with running(connection.recv) as reading:
            connection.close()
            with contextlib.suppress(OSError, ValueError):
                assert reading.get() == b""
        ended.set()

    with tls_connection(serve):
        assert ended.wait(GUARD)


def read(connection: socket.socket, size: int) -> bytes:
    """Return as many bytes."""
    got = bytearray()
    while len(got) < size:
        part = connection.recv(65_536)
        assert part, "the end came first"
        got += part
    return bytes(got)
