"""Faults of one connection: the moment at which they take effect, and their end."""

from __future__ import annotations

import pytest

from rtvi_sync.testing import FaultProxy, faults
from tests.support.loopback import Server
from tests.support.slowness import GUARD

from .sockets import connect, echo, line_to, read, read_all


def test_after_a_number_of_bytes() -> None:
    """All bytes before the moment arrive, to the last one."""
    with Server(echo) as server, FaultProxy(server.host, server.port) as proxy:
        cut = proxy.inject(faults.HalfClose(), "to_client", after_bytes=5)
        with connect(proxy) as client:
            client.sendall(b"abcd")
            assert read(client, 4) == b"abcd"
            assert not cut.struck
            client.sendall(b"efgh")
            assert read_all(client) == b"e"
            assert cut.struck


def test_counted_in_the_other_direction() -> None:
    """A fault in one direction can be triggered by bytes in the other."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        hole = connection.inject(faults.BlackHole(), "to_client", after_bytes=3, counted_in="to_server")
        client.sendall(b"ab")
        assert read(client, 2) == b"ab"
        assert not hole.struck
        client.sendall(b"c")
        assert hole.wait(GUARD)


def test_on_later_connections() -> None:
    """A fault of the proxy does not affect an existing connection, and affects each later one."""
    with Server(echo) as server, line_to(server) as (first, _, proxy):
        proxy.inject(faults.Reset())
        for _ in range(2):
            with pytest.raises(ConnectionResetError), connect(proxy) as late:
                late.recv(1)
        first.sendall(b"a")
        assert first.recv(1) == b"a"


def test_lifted_before_its_moment() -> None:
    """A fault that was lifted before its moment never takes effect."""
    with Server(echo) as server, line_to(server) as (client, connection, proxy):
        for line in (proxy, connection):
            line.inject(faults.Reset(), after_bytes=3).lift()
        client.sendall(b"abcdef")
        assert read(client, 6) == b"abcdef"
        with connect(proxy) as second:
            second.sendall(b"abcdef")
            assert read(second, 6) == b"abcdef"


def test_invalid_arguments_of_inject() -> None:
    """inject() raises ValueError for an argument that is not valid."""
    proxy = FaultProxy("127.0.0.1", 1)
    with pytest.raises(ValueError, match=r"direction must be .*, not 'up'"):
        proxy.inject(faults.Reset(), "up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="after_bytes must be an integer of 0 or more"):
        proxy.inject(faults.Reset(), after_bytes=-1)
