"""TCP and TLS: every step can be abandoned, and every failure has its own error."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import pytest
import trustme

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.net.advice import NoHTTPError, NoTLSError
from rtvi_sync.net.dial import Network, check_is_http, dial, socket_timeout
from rtvi_sync.net.urls import authority
from tests.support import limits
from tests.support.abandoning import AbandonedError
from tests.support.loopback import Server, black_hole, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

from .echoes import ask, echo, websocket_url

pytestmark = pytest.mark.inside

HOLE_ADDRESS = ("127.0.0.1", 9)


def open_to(host, port, signal):
    """Open a connection without TLS or proxy."""
    return dial(urlsplit(f"ws://{authority(host, port)}/"), Network(proxy=False), signal)


def addresses(*where, monkeypatch) -> None:
    """Make every name mean these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in where]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


# -- TCP --------------------------------------------------------------------------------------------------------------


def test_a_connection_is_opened(attempt):
    """The connection works, blocks, sends small packets at once, and notices a dead network by itself."""
    with Server(echo) as server:
        sock, detach = open_to("127.0.0.1", server.port, attempt.signal)
        assert sock.gettimeout() is None
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert ask((sock, detach)) == b"hello\n"


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_names_and_ipv6(attempt, host):
    """Names and IPv6 addresses are resolved."""
    with Server(echo, host="::1" if host == "::1" else "127.0.0.1") as server:
        assert ask(open_to(host, server.port, attempt.signal)) == b"hello\n"


def test_a_refused_connection_leaves_nothing_open(attempt):
    """A refused connection raises at once and leaves nothing open."""
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        open_to("127.0.0.1", port, attempt.signal)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".test", "no-such-name.invalid"])
def test_there_is_no_such_host(attempt, host):
    """A name that cannot be, or is not, is an OSError like any other failure."""
    with pytest.raises((socket.gaierror, OSError), match=r"host|name|service"):
        open_to(host, 80, attempt.signal)


def test_the_next_address_is_tried(attempt, monkeypatch):
    """If an address refuses, the next one is tried; the error of the last one counts."""
    with Server(echo) as server:
        addresses(HOLE_ADDRESS, ("127.0.0.1", server.port), monkeypatch=monkeypatch)
        assert ask(open_to("host", 1, attempt.signal)) == b"hello\n"
    addresses(HOLE_ADDRESS, HOLE_ADDRESS, monkeypatch=monkeypatch)
    with pytest.raises(ConnectionRefusedError):
        open_to("host", 1, attempt.signal)
    addresses(("255.255.255.255", 9), monkeypatch=monkeypatch)  # which fails before anything is sent
    with pytest.raises(OSError, match=r"unreachable|denied"):
        open_to("host", 1, attempt.signal)
    addresses(monkeypatch=monkeypatch)
    with pytest.raises(OSError, match="host has no address"):
        open_to("host", 1, attempt.signal)


def test_a_family_that_the_system_lacks_is_passed_over(attempt, monkeypatch):
    """A name with an IPv6 address first is reached on a machine without IPv6."""
    make = socket.socket

    def without_ipv6(family=-1, *args, **kwargs):
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return make(family, *args, **kwargs)

    with Server(echo) as server:
        found = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", server.port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", without_ipv6)
            opened = open_to("host", 1, attempt.signal)
        assert ask(opened) == b"hello\n"


def test_the_limit_of_the_attempt_is_kept_without_anybodys_help(monkeypatch):
    """If the attempt is not abandoned at its limit, the socket's own timeout ends it soon after."""
    limits.patch(monkeypatch, grace=0.1)
    with black_hole() as hole, pytest.raises(TimeoutError):
        open_to("127.0.0.1", hole, AbortController(Deadline(0.05), AbandonedError).signal)


def test_whoever_set_the_limit_says_what_happened(monkeypatch):
    """At the limit the socket still waits: the owner of the attempt abandons it, and that reason is raised."""
    limits.patch(monkeypatch, grace=GUARD)
    deadline = Deadline(0.1)
    controller = AbortController(deadline, AbandonedError)
    with black_hole() as hole, running(lambda: open_to("127.0.0.1", hole, controller.signal)) as opening:
        assert opening.goes_on(0.2)
        assert deadline.expired
        controller.abort()
        with pytest.raises(AbandonedError):
            opening.get()


@pytest.mark.parametrize("timeout", [1.0, 1e9, 1e300, float("inf")])
def test_every_limit_is_one_that_a_socket_takes(timeout):
    """No limit makes the socket non-blocking (0) or is too large for the platform."""
    limit = socket_timeout(AbortController(Deadline(timeout), AbandonedError).signal)
    assert limit is not None
    with socket.socket() as sock:
        sock.settimeout(limit)
        assert sock.gettimeout()


def test_after_the_limit_nothing_begins(monkeypatch):
    """A call that would start after the limit waits a moment for the attempt's owner to raise its error."""
    limits.patch(monkeypatch, grace=0.02)
    with pytest.raises(TimeoutError):
        socket_timeout(AbortController(Deadline(0.0), AbandonedError).signal)
    limits.patch(monkeypatch, grace=GUARD)
    controller = AbortController(Deadline(0.0), AbandonedError)
    with running(lambda: socket_timeout(controller.signal)) as waiting:
        controller.abort()
        with pytest.raises(AbandonedError):
            waiting.get()


def test_an_attempt_that_was_abandoned_opens_nothing(attempt):
    """Nothing is looked up or opened for an attempt that is over."""
    attempt.abort()
    with Server(echo) as server:
        with pytest.raises(AbandonedError):
            open_to("127.0.0.1", server.port, attempt.signal)
        assert server.connections == 0


def test_a_connection_without_answer_is_abandoned():
    """An abort wakes a thread whose SYN gets no answer, at any moment."""
    with black_hole() as hole:
        for _ in range(5):
            attempt = AbortController(Deadline(None), AbandonedError)
            begun = threading.Event()

            def connect(attempt=attempt, begun=begun):
                begun.set()
                return open_to("127.0.0.1", hole, attempt.signal)

            with running(connect) as opening:
                assert begun.wait(GUARD)
                attempt.abort()
                with pytest.raises(AbandonedError):
                    opening.get()


def test_an_abort_between_the_watch_and_the_connection_is_not_lost(attempt, monkeypatch):
    """An abort between the watch and the connection makes open_to() raise."""
    with black_hole() as hole:
        attach = attempt.signal.attach

        def attach_and_abort(sock):
            detach = attach(sock)
            attempt.abort()
            return detach

        monkeypatch.setattr(attempt.signal, "attach", attach_and_abort)
        with running(lambda: open_to("127.0.0.1", hole, attempt.signal)) as opening, pytest.raises(AbandonedError):
            opening.get()


def test_an_abort_during_the_look_up_is_seen_after_it(attempt, monkeypatch):
    """A thread that hangs in a name look-up opens no connection when it returns."""
    look_up, go_on = threading.Event(), threading.Event()

    def slow(*_, **__):
        look_up.set()
        assert go_on.wait(GUARD)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", HOLE_ADDRESS)]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with running(lambda: open_to("host", 80, attempt.signal)) as opening:
        assert look_up.wait(GUARD)
        attempt.abort()
        go_on.set()
        with pytest.raises(AbandonedError):
            opening.get()


# -- TLS --------------------------------------------------------------------------------------------------------------


def open_tls(server: Server, attempt, context: ssl.SSLContext | None = None, host: str | None = None):
    url = websocket_url(f"wss://{host or server.host}:{server.port}/")
    return dial(url, Network(ssl_context=context or trusting(), proxy=False), attempt.signal)


def test_tls_with_a_private_authority(attempt):
    """A server whose authority the caller's context trusts is reached."""
    with Server(echo, tls=serving()) as server:
        sock, detach = open_tls(server, attempt)
        assert isinstance(sock, ssl.SSLSocket)
        assert ask((sock, detach)) == b"hello\n"


def test_certificates_are_checked(attempt):
    """A certificate of an unknown authority, for another host, or out of date is refused, and says so."""
    with (
        Server(echo, tls=serving()) as server,
        pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|issuer"),
    ):
        open_tls(server, attempt, ssl.create_default_context())
    elsewhere = Server(echo, tls=serving("elsewhere.test"))
    with elsewhere, pytest.raises(ssl.SSLCertVerificationError, match="not valid for"):
        open_tls(elsewhere, attempt)


def test_an_expired_certificate(attempt):
    """A certificate that was valid once is refused."""
    import datetime

    authority = trustme.CA()
    long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=2)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", not_after=long_ago).configure_cert(context)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    with Server(echo, tls=context) as server, pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        open_tls(server, attempt, client)


def test_the_default_context_is_made_once(attempt):
    """Without a context of the caller's, the one of httpx is used, and made only once for the process."""
    assert Network().tls() is Network().tls()
    mine = ssl.create_default_context()
    assert Network(ssl_context=mine).tls() is mine
    with Server(echo, tls=serving()) as server, pytest.raises(ssl.SSLCertVerificationError):
        dial(websocket_url(f"wss://{server.authority}/"), Network(), attempt.signal)


def http_server(peer):
    peer.read_until(b"\x00")
    peer.answer("400 Bad Request")


def hang_up(peer):
    peer.read_until(b"\x00")


def reset(peer):
    peer.sock.recv(1)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_a_server_without_tls_is_told_from_other_failures(attempt):
    """The error states that the server answers in plain text."""
    with Server(http_server) as server, pytest.raises(NoTLSError, match="does not speak TLS"):
        open_tls(server, attempt)


@pytest.mark.parametrize("plain", [hang_up, reset])
def test_nobody_is_told_to_do_without_tls_by_a_broken_connection(attempt, plain):
    """An attacker who breaks connections could otherwise make applications send their secrets in plain text."""
    with Server(plain) as server, pytest.raises(OSError) as caught:  # noqa: PT011 - which one is up to the moment
        open_tls(server, attempt)
    assert not isinstance(caught.value, NoTLSError)
    assert "does not speak" not in str(caught.value)


def test_other_failures_of_tls_pass(attempt):
    """TLS's own errors are raised unchanged."""
    client = trusting()
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.maximum_version = ssl.TLSVersion.TLSv1_2
    with Server(echo, tls=server_context) as server, pytest.raises(ssl.SSLError) as caught:
        open_tls(server, attempt, client)
    assert not isinstance(caught.value, ssl.SSLCertVerificationError)


def test_a_silent_tls_server_is_abandoned(attempt):
    """An abort wakes a thread whose client hello gets no answer."""
    hello = threading.Event()

    def silent(peer):
        peer.sock.recv(1)
        hello.set()
        peer.hold()

    with Server(silent) as server, running(lambda: open_tls(server, attempt)) as opening:
        assert hello.wait(GUARD)
        attempt.abort()
        with pytest.raises((NoTLSError, OSError)):
            opening.get()
        assert not server.stopping.is_set()


def test_time_passes_by_the_clock_of_the_attempt():
    """The remaining time shrinks: each call of a socket gets less."""
    signal = AbortController(Deadline(5.0), AbandonedError).signal
    first = socket_timeout(signal)
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
    second = socket_timeout(signal)
    assert first is not None
    assert second is not None
    assert second < first <= 5.0 + limits.value_of("grace")


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("received", [b"H", b"HTTP", b"HTTP/1.1 200 OK\r\n"])
def test_the_beginning_of_an_answer(received: bytes) -> None:
    """Every prefix of a status line may still become one."""
    check_is_http(received)


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (b"\x15\x03\x03\x00\x02", "speaks TLS, not plain HTTP"),
        (b"SSH-2.0-OpenSSH", "speaks SSH, not HTTP"),
        (b"220 secret.test ESMTP", "does not speak HTTP"),
    ],
)
def test_something_else(received: bytes, text: str) -> None:
    """The check needs no further bytes; the error does not repeat the server's bytes."""
    with pytest.raises(NoHTTPError, match=text) as caught:
        check_is_http(received)
    assert "secret" not in str(caught.value)


def test_no_answer() -> None:
    """A connection that is closed at once is a broken one."""
    with pytest.raises(ConnectionError, match="closed without an answer"):
        check_is_http(b"")
