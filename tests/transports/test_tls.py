"""Making a TLS socket of a connection that fails meanwhile."""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import Any

import pytest

from rtvi_sync.transports.tls import wrap_socket
from tests.support.loopback import serving, trusting
from tests.support.slowness import GUARD


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
