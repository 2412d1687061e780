"""TLS beside connections that fail: one that is opened at the same time, and others of the same thread."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync.net.tls import WOULD_BLOCK, by_itself, start_tls, wrap_socket
from tests.support.loopback import serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

pytestmark = pytest.mark.inside


def leave_an_error() -> None:
    """Leave an error in OpenSSL's queue of this thread, as a connection does that fails (OpenSSL 3.4 and later)."""
    with pytest.raises(ValueError, match="unknown object"):
        ssl._ASN1Object.fromname("none of them")


Ends = tuple[ssl.SSLSocket, ssl.SSLSocket]


@contextlib.contextmanager
def connection() -> Iterator[Ends]:
    """Make a connection; its first end does not block."""
    left, right = socket.socketpair()
    with (
        running(lambda: serving().wrap_socket(right, server_side=True)) as handshake,
        start_tls(left, trusting(), "localhost") as near,
        handshake.get() as far,
    ):
        near.setblocking(False)
        yield near, far


@pytest.fixture
def ends() -> Iterator[Ends]:
    with connection() as made:
        yield made


def send_all(near: ssl.SSLSocket) -> None:
    """Send until an error is raised."""
    while True:
        by_itself(near.send, bytes(1 << 14))


def test_the_error_of_another_connection(ends: Ends) -> None:
    """An error that OpenSSL kept from another connection is not raised for this one, which goes on."""
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


def test_an_error_of_its_own(ends: Ends) -> None:
    """A connection's own error of OpenSSL is raised as it is, and none is left to others."""
    near, far = ends
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()
    with pytest.raises(OSError) as error:  # noqa: PT011 - which one depends on the version of OpenSSL
        send_all(near)
    assert not isinstance(error.value, WOULD_BLOCK)


def hang_up(far: ssl.SSLSocket) -> None:
    socket.socket(fileno=far.detach()).close()


def talk_nonsense(far: ssl.SSLSocket) -> None:
    with socket.socket(fileno=far.detach()) as plain:
        plain.sendall(b"nonsense" * 10)


def read(near: ssl.SSLSocket) -> None:
    by_itself(functools.partial(leaving_an_error, near.recv), 100)


def write(near: ssl.SSLSocket) -> None:
    by_itself(functools.partial(leaving_an_error, near.send), b"x")


def leaving_an_error(call: Callable[[Any], Any], argument: Any) -> Any:
    """Return `call(argument)`; if it fails, leave an error behind, as with OpenSSL 3.4 and later."""
    try:
        return call(argument)
    except WOULD_BLOCK:
        raise
    except OSError:
        leave_an_error()
        raise


# How the far end fails, the next call of the near end, and its error.
FAILURES = [
    (hang_up, write, "EOF occurred|Broken pipe"),
    (talk_nonsense, read, "(?i)wrong.version.number|packet.length.too.long|record.layer"),
]


@pytest.mark.parametrize("failures", [FAILURES, FAILURES[::-1]])
def test_two_connections_that_fail_at_once(failures: list[Any]) -> None:
    """Each of two connections that fail on one thread is told its own error, whichever fails first."""
    with connection() as one, connection() as other:
        both = [(*ends, *failure) for ends, failure in zip((one, other), failures, strict=True)]
        for near, far, fail, _, _ in both:
            fail(far)
            assert select.select([near], [], [], GUARD)[0]
        for near, _, _, notice, told in both:
            with pytest.raises(OSError, match=told):
                notice(near)


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
