"""The TCP server of the embedded bot: a thread for each connection, and an end of all of them."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync.concurrency.lifecycle import NoThreadError
from rtvi_sync.testing.embedded_bot import tcp_server
from rtvi_sync.testing.embedded_bot.tcp_server import TCPServer
from tests.support.slowness import GUARD, takes


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


def test_a_thread_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """That connection is closed, and later ones are served."""
    server = serving(echo)

    def none(*_: object) -> threading.Thread:
        raise NoThreadError("too many")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(tcp_server, "start_thread", none)
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
