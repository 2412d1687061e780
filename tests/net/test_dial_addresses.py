"""Hosts with several addresses: the first that answers is used, and nothing is left of the others."""

from __future__ import annotations

import errno
import selectors
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.net import dial as dial_module
from rtvi_sync.net.advice import explain
from rtvi_sync.net.dial import Network, dial
from rtvi_sync.net.urls import parse_url
from tests.support import limits
from tests.support.abandoning import AbandonedError
from tests.support.loopback import Server, black_hole
from tests.support.slowness import GUARD
from tests.support.threads import running

pytestmark = pytest.mark.inside

HOST = urlsplit("ws://host:1/")
REFUSED = ("127.0.0.1", 9)
NOBODY_LISTENS = str(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
#: Longer than any test: no attempt starts because of it.
NEVER = 1e5


class Sockets:
    """The sockets that the thread which connects has made, and the addresses it connected them to."""

    def __init__(self, make: type[socket.socket]) -> None:
        self.made: list[socket.socket] = []
        self.tried: list[tuple[object, ...]] = []
        #: The descriptors that the signal watches.
        self.watched: set[int] = set()
        self.begun = threading.Semaphore(0)
        self.thread = 0  # a server's thread makes sockets too
        sockets = self

        class Recorded(make):  # type: ignore[misc, valid-type]
            def __init__(self, *args, **kwargs) -> None:
                super().__init__(*args, **kwargs)
                if threading.get_ident() == sockets.thread:
                    sockets.made.append(self)

            def connect_ex(self, address):
                sockets.tried.append(address)
                try:
                    return super().connect_ex(address)
                finally:
                    sockets.begun.release()

        self.kind = Recorded

    @property
    def open(self) -> list[socket.socket]:
        return [sock for sock in self.made if sock.fileno() != -1]


@pytest.fixture
def sockets() -> Sockets:
    return Sockets(socket.socket)


@pytest.fixture
def connect(monkeypatch, sockets, attempt) -> Callable[..., tuple[socket.socket, Callable[[], None]]]:
    """Return `connect(*addresses)`, which connects to a host that has these."""

    duplicate, close = socket.dup, socket.close

    def watch(number: int) -> int:
        sockets.watched.add(made := duplicate(number))
        return made

    def leave(number: int) -> None:
        sockets.watched.discard(number)
        close(number)

    monkeypatch.setattr(socket, "dup", watch)
    monkeypatch.setattr(socket, "close", leave)

    def call(*addresses, signal=attempt.signal):
        found = [
            (socket.AF_INET6 if ":" in where[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", where)
            for where in addresses
        ]
        sockets.thread = threading.get_ident()
        with monkeypatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
            patch.setattr(socket, "socket", sockets.kind)
            return dial(HOST, Network(proxy=False), signal)

    return call


@pytest.fixture
def delay(monkeypatch):
    """Return `delay(seconds)`, which sets the time between two attempts."""
    return lambda seconds: limits.patch(monkeypatch, next_address=seconds)


def end(opened) -> None:
    sock, detach = opened
    detach()
    sock.close()


def accept(peer) -> None:
    """Take the connection as a server, and wait for its end."""
    peer.wait_for_end()


def test_a_silent_address_holds_nothing_up(connect, sockets):
    """Without any limit the next address is tried beside one that does not answer, and the first one is closed."""
    with (
        Server(accept) as server,
        black_hole() as hole,
        running(lambda: connect(("127.0.0.1", hole), ("127.0.0.1", server.port))) as connecting,
    ):
        opened = connecting.get()
        assert opened[0].getpeername() == ("127.0.0.1", server.port)
        assert len(sockets.open) == len(sockets.watched) == 1
        end(opened)
        assert sockets.open == [*sockets.watched] == []


def test_the_delay_is_that_of_the_rfc():
    """RFC 8305, section 5, recommends 250 ms."""
    assert limits.value_of("next_address") == 0.25


def test_the_families_take_turns(connect, sockets):
    """A host with three addresses of one family and two of another is tried in the order of RFC 8305, section 4."""
    with pytest.raises(OSError, match="port 9"):
        connect(*[("::1", 9, 0, n) for n in range(3)], *[("127.0.0.1", 9 + n) for n in range(2)])
    assert sockets.tried == [("::1", 9, 0, 0), ("127.0.0.1", 9), ("::1", 9, 0, 1), ("127.0.0.1", 10), ("::1", 9, 0, 2)]
    assert sockets.open == [*sockets.watched] == []


def test_an_address_that_connects_is_the_only_one(connect, sockets, delay):
    """The ordinary case: one attempt, one duplicate for the signal, no more."""
    delay(NEVER)
    with Server(accept) as server:
        opened = connect(("127.0.0.1", server.port), REFUSED)
        assert sockets.tried == [("127.0.0.1", server.port)]
        assert len(sockets.made) == len(sockets.watched) == 1
        end(opened)


def test_after_a_refusal_the_next_attempt_begins_at_once(connect, sockets, delay):
    """The delay is for addresses that are silent, not for those that refuse."""
    delay(NEVER)
    with (
        Server(accept) as server,
        running(lambda: connect(REFUSED, ("255.255.255.255", 9), ("127.0.0.1", server.port), REFUSED)) as connecting,
    ):
        opened = connecting.get()
        assert sockets.tried == [REFUSED, ("255.255.255.255", 9), ("127.0.0.1", server.port)]
        assert len(sockets.open) == len(sockets.watched) == 1
        end(opened)


def test_all_attempts_but_the_first_that_connects_are_closed(connect, sockets, delay):
    """All attempts but the first that connects are closed, however many are in progress."""
    delay(0.0)
    with Server(accept) as server, black_hole() as hole:
        silent = [("127.0.0.1", hole)] * 5
        opened = connect(*silent, ("127.0.0.1", server.port))
        assert sockets.tried == [*silent, ("127.0.0.1", server.port)]
        assert len(sockets.open) == len(sockets.watched) == 1
        end(opened)
    assert sockets.open == [*sockets.watched] == []


def test_an_abort_ends_all_attempts(connect, sockets, delay, attempt):
    """An abort wakes the thread that connects, and none of the sockets stays open."""
    delay(0.0)
    with black_hole() as hole, running(lambda: connect(*[("127.0.0.1", hole)] * 3)) as connecting:
        for _ in range(3):
            assert sockets.begun.acquire(timeout=GUARD)
        attempt.abort()
        with pytest.raises(AbandonedError):
            connecting.get()
    assert sockets.open == [*sockets.watched] == []


def test_one_limit_holds_for_all_attempts(connect, sockets, monkeypatch):
    """The limit holds for all attempts together; the error names every address."""

    class Limit(Deadline):
        expired = property(lambda self: len(sockets.tried) == 3)

        def at_most(self, timeout):
            return 0.0

    monkeypatch.setattr(dial_module, "Deadline", Limit)
    with black_hole() as hole:
        with pytest.raises(TimeoutError) as caught:
            connect(REFUSED, *[("127.0.0.1", hole)] * 2, REFUSED)
        late = f"127.0.0.1 port {hole}: the connection was not answered in time"
    assert str(caught.value) == f"127.0.0.1 port 9: {NOBODY_LISTENS}; {late}; {late}"
    assert sockets.open == [*sockets.watched] == []


def test_an_exception_leaves_nothing_open(connect, sockets, delay, monkeypatch):
    """Whatever strikes while attempts are under way, as Ctrl-C may."""
    delay(0.0)
    kind = getattr(selectors, "PollSelector", selectors.DefaultSelector)
    select = kind.select

    def struck(selector, timeout=None):
        if len(selector.get_map()) == 2:
            raise KeyboardInterrupt
        return select(selector, timeout)

    with black_hole() as hole, monkeypatch.context() as patch:
        patch.setattr(kind, "select", struck)
        with pytest.raises(KeyboardInterrupt):
            connect(*[("127.0.0.1", hole)] * 3)
    assert len(sockets.tried) == 2
    assert sockets.open == [*sockets.watched] == []


def test_every_address_says_why(connect, sockets):
    """The kind of the error is kept where all addresses have the same; one address has an error of its own."""
    with pytest.raises(ConnectionRefusedError) as caught:
        connect(REFUSED)
    assert str(caught.value) == NOBODY_LISTENS
    with pytest.raises(ConnectionRefusedError) as caught:
        connect(REFUSED, ("::1", 9, 0, 0))
    assert str(caught.value) == f"127.0.0.1 port 9: {NOBODY_LISTENS}; ::1 port 9: {NOBODY_LISTENS}"
    with pytest.raises(OSError, match=r"255\.255\.255\.255 port 9: .*; 127\.0\.0\.1 port 9: ") as mixed:
        connect(("255.255.255.255", 9), REFUSED)
    assert type(mixed.value) is OSError
    assert sockets.open == [*sockets.watched] == []


def test_too_few_descriptors_for_any_address(monkeypatch, attempt):
    """Each address fails because the process has no descriptor left: the advice is about that."""

    def none_left(*_) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", REFUSED)] * 2
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        patch.setattr(socket, "socket", none_left)
        with pytest.raises(OSError, match=r"port 9: .*; .* port 9: ") as caught:
            dial(HOST, Network(proxy=False), attempt.signal)
    assert "ulimit -n" in str(explain(caught.value))


def test_the_number_of_addresses_is_limited(connect, sockets):
    """A name server that answers with any number of addresses costs 32 attempts, and a message of four lines."""
    with pytest.raises(ConnectionRefusedError) as caught:
        connect(*[REFUSED] * 500)
    assert len(sockets.tried) == 32
    assert str(caught.value).count("port 9") == 4
    assert str(caught.value).endswith("; and 28 more addresses")


def test_a_proxy_is_reached_in_the_same_way(monkeypatch, attempt):
    """A proxy's silent address holds up no stream."""

    def proxy(peer) -> None:
        peer.read_head()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        peer.wait_for_end()

    url = parse_url("ws://bot.test/", "ws")
    assert url is not None
    with Server(proxy) as server, black_hole() as hole:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (hole, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        network = Network(proxy="http://proxy.test:3128")
        with running(lambda: dial(url, network, attempt.signal)) as opening:
            end(opening.get())
