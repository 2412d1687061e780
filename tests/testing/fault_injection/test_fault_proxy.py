"""The fault proxy between plain sockets."""

from __future__ import annotations

import errno
import queue
import socket
import struct
import threading
import time
from typing import Any

import pytest

from rtvi_sync.testing import FaultProxy, faults
from rtvi_sync.testing.faults import DIRECTIONS, Direction
from tests.support import limits
from tests.support.loopback import Peer, Server, serving, trusting
from tests.support.slowness import GUARD, takes
from tests.support.threads import package_threads
from tests.support.waiting import until

from .sockets import A_WHILE, connect, echo, line_to, nothing_comes, read, read_all

# -- without a fault --------------------------------------------------------------------------------------------------


def test_everything_passes_unharmed() -> None:
    """Many bytes arrive unchanged; the end of each stream is forwarded, and then the connection has ended."""
    sent = bytes(range(256)) * 20_000
    received = queue.SimpleQueue[bytes]()

    def receive(peer: Peer) -> None:
        received.put(peer.wait_for_end())
        peer.send(b"thanks")

    with Server(receive) as server, FaultProxy(server.host, server.port) as proxy, connect(proxy) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client) == b"thanks"
        connection = proxy.connections[-1]
        assert connection.wait_ended()
        assert connection.received_bytes("to_server") == len(sent)
        assert connection.received_bytes("to_client") == len(b"thanks")
    assert received.get() == sent


def test_a_receiver_that_does_not_read_slows_the_sender() -> None:
    """The proxy buffers a limited number of bytes."""
    with Server(Peer.hold) as server, FaultProxy(server.host, server.port) as proxy, connect(proxy) as client:
        client.settimeout(A_WHILE)
        with pytest.raises(TimeoutError):
            client.sendall(bytes(100_000_000))


def test_a_server_that_is_not_there() -> None:
    """The client's connection is reset."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with FaultProxy("127.0.0.1", port) as proxy, pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)


@pytest.mark.parametrize(
    ("family", "first"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "240.0.0.1"), (9999, "::1")],
    ids=["refused", "unreachable", "no such family"],
)
def test_a_name_of_several_addresses(family: int, first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of a name are tried in order, as `localhost` may be ::1 while the bot listens at 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free_port = listening.getsockname()[1]

    def addresses(host: str, port: int, **_: object) -> list[object]:
        found = [(family, first, free_port), (family, first, free_port), (socket.AF_INET, host, port)]
        return [(kind, socket.SOCK_STREAM, 6, "", (name, number)) for kind, name, number in found]

    with Server(echo) as server, monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", addresses)
        with FaultProxy(server.host, server.port) as proxy:
            patched.undo()
            with connect(proxy) as client:
                client.sendall(b"x")
                assert client.recv(1) == b"x"


def test_a_reset_is_passed_on() -> None:
    """A server that resets its connection resets the client's."""

    def reset(peer: Peer) -> None:
        peer.send(peer.read(1))
        peer.read(1)
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with Server(reset) as server, line_to(server) as (client, connection, _):
        client.sendall(b"a")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert connection.wait_ended()


def test_tls_passes() -> None:
    """The proxy forwards the bytes on the wire, so it needs no certificate."""
    with (
        Server(echo, tls=serving()) as server,
        FaultProxy(server.host, server.port) as proxy,
        trusting().wrap_socket(connect(proxy), server_hostname="localhost") as client,
    ):
        client.sendall(b"secret")
        assert read(client, 6) == b"secret"


# -- each fault -------------------------------------------------------------------------------------------------------


def test_delay() -> None:
    """An open connection gets slow in one direction, and fast again."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        delay = connection.inject(faults.Delay(A_WHILE), "to_client")
        assert delay.struck
        began = time.monotonic()
        client.sendall(b"a")
        assert client.recv(1) == b"a"
        assert time.monotonic() - began >= A_WHILE

        delay.lift()
        client.sendall(b"b")
        assert client.recv(1) == b"b"


def test_a_delay_without_end() -> None:
    """A delay without end holds back its own connection only, and the proxy serves others."""
    with Server(echo) as server, line_to(server) as (client, connection, proxy):
        connection.inject(faults.Delay(1e9), "to_client")
        client.sendall(b"a")
        with connect(proxy) as other:
            other.sendall(b"b")
            assert other.recv(1) == b"b"


def test_split() -> None:
    """A fast receiver gets each byte by itself."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        connection.inject(faults.Split(), "to_client")
        connection.inject(faults.Throttle(1 / A_WHILE), "to_client")
        client.sendall(b"abc")
        assert [client.recv(100), client.recv(100)] == [b"a", b"b"]


def test_coalesce() -> None:
    """Small chunks arrive as one when they reach the size."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        connection.inject(faults.Coalesce(4, GUARD), "to_client")
        for piece in (b"a", b"b", b"c", b"d"):
            client.sendall(piece)
        assert client.recv(100) == b"abcd"


def test_throttle() -> None:
    """The bytes take the time of their rate."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        connection.inject(faults.Throttle(1000 / A_WHILE), "to_server")
        began = time.monotonic()
        client.sendall(bytes(1000))
        assert read(client, 1000) == bytes(1000)
        assert time.monotonic() - began >= 0.9 * A_WHILE


def test_drop_and_corrupt() -> None:
    """Bytes are dropped on the way to the server, and changed on the way back."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        connection.inject(faults.Drop(2), "to_server", after_bytes=1)
        connection.inject(faults.Corrupt(2, 0x20), "to_client", after_bytes=2)
        client.sendall(b"abcdefg")
        assert read(client, 5) == b"adEFg"


def test_black_hole() -> None:
    """No byte arrives and no stream ends; when the fault is lifted, all bytes arrive."""
    with Server(echo) as server, line_to(server) as (client, connection, _):
        hole = connection.inject(faults.BlackHole())
        client.sendall(b"abc")
        assert nothing_comes(client)
        assert not connection.ended

        hole.lift()
        assert read(client, 3) == b"abc"


def test_half_close() -> None:
    """The client's incoming stream ends; the bytes that it sends still arrive."""
    heard = queue.SimpleQueue[bytes]()

    def hear(peer: Peer) -> None:
        peer.send(peer.read(1))
        heard.put(peer.wait_for_end())

    with Server(hear) as server, line_to(server) as (client, connection, _):
        connection.inject(faults.HalfClose(), "to_client")
        assert client.recv(1) == b""
        client.sendall(b"still here")
        client.close()
        assert heard.get(timeout=GUARD) == b"still here"
        assert connection.wait_ended()


@pytest.mark.parametrize("direction", [*DIRECTIONS, None])
def test_reset(direction: Direction | None) -> None:
    """The receiver sees a reset, the other side the end of the stream; with both directions, both see a reset."""
    ends = queue.SimpleQueue[str]()

    def end_of(sock: socket.socket) -> str:
        try:
            return "closed" if sock.recv(1) == b"" else "alive"
        except ConnectionResetError:
            return "reset"

    def serve(peer: Peer) -> None:
        peer.send(peer.read(1))
        ends.put(end_of(peer.sock))

    with Server(serve) as server, line_to(server) as (client, connection, _):
        reset = connection.inject(faults.Reset(), direction)
        assert reset.wait(GUARD)
        assert connection.wait_ended()
        seen = {"to_client": end_of(client), "to_server": ends.get(timeout=GUARD)}
    assert seen == {way: "reset" if direction in (way, None) else "closed" for way in DIRECTIONS}


def test_refuse() -> None:
    """New connections are refused and existing ones stay open; then the same port accepts again."""
    with Server(echo) as server, line_to(server) as (client, _, proxy):
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            connect(proxy)
        client.sendall(b"a")
        assert client.recv(1) == b"a"

        proxy.accept()
        proxy.accept()
        with connect(proxy) as second:
            second.sendall(b"b")
            assert second.recv(1) == b"b"


@pytest.mark.parametrize("meanwhile", [False, True], ids=["", "refused meanwhile"])
def test_no_descriptor_is_left(
    meanwhile: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection waits until there is one; the proxy looks for it now and then, says so once, and serves others."""
    attempts: list[float] = []
    real, are_left = socket.socket.accept, threading.Event()

    def accept(listening: socket.socket) -> tuple[socket.socket, Any]:
        if listening.getsockname()[1] != proxy.port or are_left.is_set():
            return real(listening)
        attempts.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    with Server(echo) as server, line_to(server) as (client, _, proxy):
        monkeypatch.setattr(socket.socket, "accept", accept)
        with connect(proxy):
            until(lambda: len(attempts) >= 3)
            assert attempts[2] - attempts[0] >= 2 * limits.value_of("proxy_pause") * 0.9  # the clocks of both differ
            client.sendall(b"a")
            assert client.recv(1) == b"a"
            if meanwhile:
                proxy.refuse()
                with pytest.raises(ConnectionRefusedError):
                    connect(proxy)
                proxy.accept()
            with connect(proxy) as second:
                are_left.set()
                second.sendall(b"b")
                assert second.recv(1) == b"b"
        with connect(proxy) as third:
            third.sendall(b"c")
            assert third.recv(1) == b"c"
    messages = [message for message in caplog.messages if "Too many open files" in message]
    assert len(messages) == 1 + meanwhile
    assert "raise the limit of open files" in messages[0]


# -- moments ----------------------------------------------------------------------------------------------------------


# -- the proxy itself -------------------------------------------------------------------------------------------------


def test_what_is_no_fault() -> None:
    """A class in the place of a fault, for instance, raises."""
    with FaultProxy("127.0.0.1", 1) as proxy, pytest.raises(TypeError, match=r"such as Reset\(\)"):
        proxy.inject(faults.Reset)  # type: ignore[arg-type]


def test_urls() -> None:
    """The server's address is replaced by the proxy's; the rest of the URL stays."""
    with Server(echo) as server, FaultProxy.before(f"wss://{server.authority}/ws") as proxy:
        assert proxy.url("wss://user@example.org:1234/ws?a=b#c") == f"wss://127.0.0.1:{proxy.port}/ws?a=b#c"
        with connect(proxy) as client:
            client.sendall(b"a")
            assert client.recv(1) == b"a"


def test_ipv6() -> None:
    """The proxy listens and connects on IPv6 too."""
    with Server(echo, host="::1") as server, FaultProxy.before(f"ws://{server.authority}", host="::1") as proxy:
        assert proxy.url("ws://x/") == f"ws://[::1]:{proxy.port}/"
        with connect(proxy) as client:
            client.sendall(b"a")
            assert client.recv(1) == b"a"


def test_stop_ends_everything() -> None:
    """stop() returns at once with connections in any state; no thread is left, and later faults have no effect."""
    with Server(Peer.hold) as server:
        proxy = FaultProxy(server.host, server.port)
        proxy.stop()
        proxy.start()
        with pytest.raises(RuntimeError, match="already running"):
            proxy.start()
        delay = proxy.inject(faults.Delay(GUARD))
        hole = proxy.inject(faults.BlackHole(), after_bytes=10_000)
        with connect(proxy) as held, connect(proxy) as ended:
            for client in (held, ended):
                client.sendall(bytes(20_000))
            ended.shutdown(socket.SHUT_WR)
            assert hole.wait(GUARD)
            with takes(1.0):
                proxy.stop()
            assert not [thread for thread in package_threads() if "proxy" in thread.name]
        assert proxy.connections
        assert all(connection.ended for connection in proxy.connections)
        delay.lift()
        proxy.refuse()
        proxy.accept()
        proxy.stop()


def test_start_after_stop() -> None:
    """A proxy that was stopped can be started again, at the same port."""
    with Server(echo) as server:
        proxy = FaultProxy(server.host, server.port)
        for _ in range(2):
            with proxy, connect(proxy) as client:
                client.sendall(b"a")
                assert client.recv(1) == b"a"
        assert len(proxy.connections) == 2


def test_inject_from_many_threads() -> None:
    """Faults are injected and lifted while bytes flow, and no byte is lost."""
    sent = bytes(range(256)) * 400
    with Server(echo) as server, line_to(server) as (client, connection, proxy):

        def disturb() -> None:
            for fault in (faults.Delay(0.001), faults.Split(100), faults.Coalesce(500, 0.001), faults.BlackHole()) * 5:
                for line in (connection, proxy):
                    line.inject(fault).lift()

        disturbers = [threading.Thread(target=disturb) for _ in range(4)]
        for thread in disturbers:
            thread.start()
        for start in range(0, len(sent), 1024):
            client.sendall(sent[start : start + 1024])
            assert read(client, 1024) == sent[start : start + 1024]
        for thread in disturbers:
            thread.join(GUARD)
            assert not thread.is_alive()
