"""TLS beside connections that fail: the one that is made meanwhile, and others of the same thread."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync.transports.tls import WOULD_BLOCK, by_itself, start_tls, wrap_socket
from tests.support.loopback import serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running


def leave_an_error() -> None:
    """Leave an error in OpenSSL's queue of this thread, as a connection does that fails (OpenSSL 3.4 and later)."""
    with pytest.raises(ValueError, match="unknown object"):
        ssl._ASN1Object.fromname("none of them")


@pytest.fixture
def ends() -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Make a connection; its first end does not block."""
    left, right = socket.socketpair()
    with (
        running(lambda: serving().wrap_socket(right, server_side=True)) as handshake,
        start_tls(left, trusting(), "localhost") as near,
        handshake.get() as far,
    ):
        near.setblocking(False)
        yield near, far


def send_all(near: ssl.SSLSocket) -> None:
    """Send until an error is raised."""
    while True:
        by_itself(near.send, bytes(1 << 14))


def test_the_error_of_another_connection(ends: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """It is not raised for this one, which goes on."""
    near, far = ends
    leave_an_error()
    with pytest.raises(WOULD_BLOCK):
        by_itself(near.recv, 100)
    leave_an_error()
    with pytest.raises(WOULD_BLOCK):
        send_all(near)
    far.sendall(b"x")
    assert select.select([near], [], [], GUARD)[0]
    assert by_itself(near.recv, 100) == b"x"


def test_an_error_of_its_own(ends: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """It is raised as it is, and none is left to others."""
    near, far = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    with pytest.raises(OSError) as error:  # noqa: PT011 - which one depends on the version of OpenSSL
        send_all(near)
    assert not isinstance(error.value, WOULD_BLOCK)


@pytest.mark.parametrize("server_side", [False, True])
def test_a_connection_that_was_reset_leaves_no_descriptor(server_side: bool) -> None:
    """However long the error is kept, the descriptor is closed at once."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname(), GUARD)
        far, _ = listening.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    assert select.select([near], [], [], GUARD)[0]
    descriptor = near.fileno()
    options: dict[str, Any] = {"server_side": True} if server_side else {"server_hostname": "localhost"}

    with pytest.raises(OSError) as kept:  # noqa: PT011 - which one depends on the version of Python
        wrap_socket(near, serving() if server_side else trusting(), **options)

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert kept.value.__traceback__ is not None
