"""Sockets through a fault proxy."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from rtvi_sync.testing import FaultProxy, ProxyConnection
from tests.support.loopback import Peer, Server
from tests.support.slowness import GUARD

#: Longer than any byte takes through the proxy, shorter than the limit of a test.
A_WHILE = 0.3


def echo(peer: Peer) -> None:
    """Echo all bytes until the client ends its stream."""
    while part := peer.sock.recv(65536):
        peer.send(part)


@contextlib.contextmanager
def line_to(server: Server) -> Iterator[tuple[socket.socket, ProxyConnection, FaultProxy]]:
    """Yield a client's socket, its connection through a proxy, and the proxy; one byte has been echoed."""
    with FaultProxy(server.host, server.port) as proxy, connect(proxy) as client:
        client.sendall(b".")
        assert client.recv(1) == b"."
        yield client, proxy.connections[-1], proxy


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), GUARD)


def read(sock: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < size and (part := sock.recv(size - len(data))):
        data += part
    return data


def read_all(sock: socket.socket) -> bytes:
    """Return all bytes up to the end of the stream."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


def nothing_comes(sock: socket.socket) -> bool:
    sock.settimeout(A_WHILE)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(GUARD)
    return False
