"""TCP, TLS and proxies: every step can be abandoned, and every failure says what it was."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import httpx
import pytest
import trustme
from hypothesis import example, given
from hypothesis import strategies as st

from rtvi_sync import connect
from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import InvalidTransportParamsError
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.transports.net import (
    Network,
    ProxyError,
    check_headers,
    is_private_host,
    merged_headers,
    open_stream,
    open_tcp,
    parse_url,
    printable,
    socket_timeout,
)
from rtvi_sync.transports.tls import NoTLSError
from tests.support import limits
from tests.support.loopback import Proxy, Server, black_hole, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

from .abandoned import AbandonedError

pytestmark = pytest.mark.inside

HOLE_ADDRESS = ("127.0.0.1", 9)


def echo(peer):
    """Send back what comes, one line at a time."""
    while True:
        peer.send(peer.read_until(b"\n"))


def ask(opened) -> bytes:
    """Return what an echo server answers over a connection that was just opened; then close it."""
    sock, detach = opened
    with sock:
        sock.sendall(b"hello\n")
        answer = sock.recv(100)
        detach()
    return answer


def websocket_url(text):
    """Return a URL that is valid."""
    url = parse_url(text, "ws", "wss")
    assert url is not None
    return url


def addresses(*where, monkeypatch) -> None:
    """Make every name mean these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in where]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


# -- URLs and headers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wire"),
    [
        ("ws://host", "ws://host"),
        ("WS://Host:80/Path", "ws://host:80/Path"),
        ("wss://bücher.test/ü?q=ü x", "wss://xn--bcher-kva.test/%C3%BC?q=%C3%BC%20x"),
        ("ws://[::1]:8080/a;b=1?c;d", "ws://[::1]:8080/a;b=1?c;d"),
        ("ws://user:p%40ss@host/", "ws://user:p%40ss@host/"),
    ],
)
def test_urls_are_brought_into_the_form_of_the_wire(text, wire):
    """Names and paths beyond ASCII, blanks and upper case hosts become what goes over the wire."""
    parts = parse_url(text, "ws", "wss")
    assert parts is not None
    assert parts.geturl() == wire


_names = st.from_regex(r"[0-9a-z._-]{1,12}|[12]?[0-9]{1,2}(\.[0-9]{1,3}){3}|127\.0\.0\.1", fullmatch=True)
_ports = st.from_regex(r"(:[0-9]{1,5})?", fullmatch=True)
_rests = st.from_regex(r"(/[a-zA-Z0-9._~%;-]{0,4}){0,3}(\?[a-zA-Z0-9._~=&%+-]{0,8})?", fullmatch=True)


@given(st.builds("{}://{}{}{}".format, st.sampled_from(["ws", "wss"]), _names, _ports, _rests))
@example("ws://127.0.0.1:8765/ws-client?events=5&token=a.b_c-d~e")
@example("ws://127.0.0.256/")
@example("ws://1.2.3.04/")
@example("ws://1.2.3/")
@example("ws://h/a/../b/./c")
@example("wss://h:443/")
@example("wss://xn--bcher-kva.test/")
@example("wss://xn--.test/")
def test_a_url_is_what_httpx_makes_of_it(text):
    """What is taken without httpx, because it looks plain, is what httpx would have made of it."""
    try:
        url = httpx.URL(text)
        url.host  # noqa: B018 - raises if it begins with "xn--" and is no name in this form
        expected = urlsplit(str(url))
        expected.port  # noqa: B018 - raises if it cannot be one
    except (httpx.InvalidURL, ValueError):
        expected = None
    parts = parse_url(text, "ws", "wss")
    assert parts == expected or (parts is None and expected is not None and expected.port == 0)


@pytest.mark.parametrize(
    "text",
    ["", "host", "ws:", "ws://", "ws:///path", "http://host", "ws://host:0", "ws://host:65536", "ws://host:x",
     "ws://ho\nst", "ws://a b", "ws://a%20b", "ws://a|b", "ws://a,b", "ws://[::1", "ws://host/\r\nX: y",
     "ws://host/ws ", "ws://xn--.test", "ws://xn--a.test/ws", "ws://" + "a" * 70000],
)  # fmt: skip
def test_bad_urls_are_none(text):
    """What is not a URL of the schemes that were asked for is refused, whatever is wrong with it."""
    assert parse_url(text, "ws", "wss") is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("wss://user:secret@host:1/path?token=secret#secret", "wss://host:1/path"),
        ("http://host/\x1b[31m", "http://host/?[31m"),
        ("http://host/" + "a" * 500, "http://host/" + "a" * 188),
        ("http://[secret", "(not a URL)"),
        ("ws://ada:secret/word@host/", "(not a URL)"),
        ("ws://ada:secret#word@host/", "(not a URL)"),
        ("ws://ada:secret?word@host/", "(not a URL)"),
        ("ws://ada:2024/secret@host:7860/ws?a=b", "ws://...@host:7860/ws"),
        ("ws://ada:2024/sec@ret@host", "ws://...@host"),
        ("ws://ada:se@2024:1/cret@host/", "ws://...@host/"),
        ("ws://ada:2024?secret@host/", "(not a URL)"),
        ("ws://ada:2024#secret@host/", "(not a URL)"),
        ("ws://ada:2024/a?secret@host/", "(not a URL)"),
        ("ws://host:7860/ws?mail=ada@host", "ws://host:7860/ws"),
        ("ada:secret@host/path", "ada:host/path"),
        ("//ada:secret@host/path?secret", "//host/path"),
        ("javascript:secret@alert(1)", "javascript:alert(1)"),
        ("http://host/@me", "http://host/@me"),
        ("https://host:7860/api/@scope/start", "https://host:7860/api/@scope/start"),
        ("https://ada:2024/@secret@host/", "https://...@host/"),
        ("http://host/a/sessions/secret/api/offer", "http://host/a/sessions/.../api/offer"),
        ("http://host/sessions/secret", "http://host/sessions/..."),
        ("ws://host/a/ws-client/secret", "ws://host/a/ws-client/..."),
        ("ws://host/ws/secret/", "ws://host/ws/.../"),
        ("ws://host/ws-client", "ws://host/ws-client"),
        ("ws://host/news/item", "ws://host/news/item"),
    ],
)
def test_what_is_shown_of_a_url_is_not_secret(url, shown):
    """User, password, query, fragment, a session's name and a token are left out; the rest is short and printable."""
    assert printable(url) == shown


@pytest.mark.parametrize(
    "headers",
    [{"X\n": "v"}, {"X:": "v"}, {"": "v"}, {"X Y": "v"}, {5: "v"}, {"X": "secret\r\nEvil: 1"}, {"X": "secret\n"},
     {"X": "secret\0"}, {"X": " secret"}, {"X": "secret "}, {"X": "sécret"}, {"X": 5}, {"X": None}],
)  # fmt: skip
def test_headers_that_could_smuggle_in_others_are_refused(headers):
    """The message names the header and keeps its value to itself."""
    with pytest.raises(InvalidTransportParamsError) as caught:
        check_headers(headers)
    assert "secret" not in str(caught.value)


def test_ordinary_headers_pass():
    """Blanks and tabs inside a value, and an empty value, are fine."""
    check_headers({"Authorization": "Bearer abc", "x-tab": "a\tb", "Empty": "", "X!#$%&'*+.^_`|~": "1"})


def test_headers_of_several_sources():
    """The last one of a name counts, whatever its case."""
    merged = merged_headers({"Authorization": "old", "X-A": "1"}, {"authorization": "new"}, {})
    assert merged == {"authorization": "new", "X-A": "1"}


@pytest.mark.parametrize(
    ("host", "private"),
    [("127.0.0.1", True), ("::1", True), ("10.1.2.3", True), ("192.168.0.9", True), ("fe80::1%eth0", True),
     ("localhost", True), ("bot.localhost", True), ("8.8.8.8", False), ("2001:4860:4860::8888", False),
     ("bot.example", False), ("localhost.example", False), ("notlocalhost", False), ("", False)],
)  # fmt: skip
def test_private_hosts(host, private):
    """Only this machine and private addresses count as private; no name is looked up."""
    assert is_private_host(host) is private


# -- TCP --------------------------------------------------------------------------------------------------------------


def test_a_connection_is_opened(attempt):
    """The connection works, blocks, sends small packets at once, and notices a dead network by itself."""
    with Server(echo) as server:
        sock, detach = open_tcp("127.0.0.1", server.port, attempt.signal)
        assert sock.gettimeout() is None
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert ask((sock, detach)) == b"hello\n"


@pytest.mark.parametrize("host", ["::1", "localhost"])
def test_names_and_ipv6(attempt, host):
    """Names and IPv6 addresses are resolved."""
    with Server(echo, host="::1" if host == "::1" else "127.0.0.1") as server:
        assert ask(open_tcp(host, server.port, attempt.signal)) == b"hello\n"


def test_a_refused_connection_leaves_nothing_open(attempt):
    """A refused connection raises at once and leaves nothing open."""
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        open_tcp("127.0.0.1", port, attempt.signal)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".test", "no-such-name.invalid", ""])
def test_there_is_no_such_host(attempt, host):
    """A name that cannot be, or is not, is an OSError like any other failure."""
    with pytest.raises((socket.gaierror, OSError), match=r"host|name|service"):
        open_tcp(host, 65536 if not host else 80, attempt.signal)


def test_the_next_address_is_tried(attempt, monkeypatch):
    """If an address refuses, the next one is tried; the error of the last one counts."""
    with Server(echo) as server:
        addresses(HOLE_ADDRESS, ("127.0.0.1", server.port), monkeypatch=monkeypatch)
        assert ask(open_tcp("host", 1, attempt.signal)) == b"hello\n"
    addresses(HOLE_ADDRESS, HOLE_ADDRESS, monkeypatch=monkeypatch)
    with pytest.raises(ConnectionRefusedError):
        open_tcp("host", 1, attempt.signal)
    addresses(("255.255.255.255", 9), monkeypatch=monkeypatch)  # which fails before anything is sent
    with pytest.raises(OSError, match=r"unreachable|denied"):
        open_tcp("host", 1, attempt.signal)
    addresses(monkeypatch=monkeypatch)
    with pytest.raises(OSError, match="host has no address"):
        open_tcp("host", 1, attempt.signal)


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
            opened = open_tcp("host", 1, attempt.signal)
        assert ask(opened) == b"hello\n"


def test_the_limit_of_the_attempt_is_kept_without_anybodys_help(monkeypatch):
    """If the attempt is not abandoned at its limit, the socket's own timeout ends it soon after."""
    limits.patch(monkeypatch, grace=0.1)
    with black_hole() as hole, pytest.raises(TimeoutError):
        open_tcp("127.0.0.1", hole, AbortController(Deadline(0.05), AbandonedError).signal)


def test_whoever_set_the_limit_says_what_happened(monkeypatch):
    """At the limit the socket still waits: the owner of the attempt abandons it, and that reason is raised."""
    limits.patch(monkeypatch, grace=GUARD)
    deadline = Deadline(0.1)
    controller = AbortController(deadline, AbandonedError)
    with black_hole() as hole, running(lambda: open_tcp("127.0.0.1", hole, controller.signal)) as opening:
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
    """A call that would begin after the limit waits for the owner of the attempt to say so, for a moment."""
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
            open_tcp("127.0.0.1", server.port, attempt.signal)
        assert server.connections == 0


def test_a_connection_without_answer_is_abandoned():
    """An abort wakes a thread whose SYN gets no answer, at any moment."""
    with black_hole() as hole:
        for _ in range(5):
            attempt = AbortController(Deadline(None), AbandonedError)
            begun = threading.Event()

            def connect(attempt=attempt, begun=begun):
                begun.set()
                return open_tcp("127.0.0.1", hole, attempt.signal)

            with running(connect) as opening:
                assert begun.wait(GUARD)
                attempt.abort()
                with pytest.raises(AbandonedError):
                    opening.get()


def test_an_abort_between_the_watch_and_the_connection_is_not_lost(attempt, monkeypatch):
    """An abort between the watch and the connection makes open_tcp() raise."""
    with black_hole() as hole:
        attach = attempt.signal.attach

        def attach_and_abort(sock):
            detach = attach(sock)
            attempt.abort()
            return detach

        monkeypatch.setattr(attempt.signal, "attach", attach_and_abort)
        with running(lambda: open_tcp("127.0.0.1", hole, attempt.signal)) as opening, pytest.raises(AbandonedError):
            opening.get()


def test_an_abort_during_the_look_up_is_seen_after_it(attempt, monkeypatch):
    """A thread that hangs in a name look-up opens nothing when it comes back."""
    look_up, go_on = threading.Event(), threading.Event()

    def slow(*_, **__):
        look_up.set()
        assert go_on.wait(GUARD)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", HOLE_ADDRESS)]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with running(lambda: open_tcp("host", 80, attempt.signal)) as opening:
        assert look_up.wait(GUARD)
        attempt.abort()
        go_on.set()
        with pytest.raises(AbandonedError):
            opening.get()


# -- TLS --------------------------------------------------------------------------------------------------------------


def open_tls(server: Server, attempt, context: ssl.SSLContext | None = None, host: str | None = None):
    url = websocket_url(f"wss://{host or server.host}:{server.port}/")
    return open_stream(url, Network(ssl_context=context or trusting(), proxy=False), attempt.signal)


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
        open_stream(websocket_url(f"wss://{server.authority}/"), Network(), attempt.signal)


def http_server(peer):
    peer.read_until(b"\x00")
    peer.answer("400 Bad Request")


def hang_up(peer):
    peer.read_until(b"\x00")


def reset(peer):
    peer.sock.recv(1)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_a_server_without_tls_is_told_from_other_failures(attempt):
    """A server that answers in plain text is called what it is."""
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
    """What TLS says itself is not blamed on something else."""
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


# -- proxies ----------------------------------------------------------------------------------------------------------


def stream(server: Server, network: Network, attempt, scheme: str = "ws"):
    url = websocket_url(f"{scheme}://{server.authority}/")
    return open_stream(url, network, attempt.signal)


@pytest.mark.parametrize("tls", [False, True])
def test_a_stream_goes_through_the_proxy(attempt, tls):
    """ws and wss are tunnelled; the proxy learns host and port, and nothing of what is inside."""
    context = trusting() if tls else None
    with Server(echo, tls=serving() if tls else None) as server, Proxy() as proxy:
        network = Network(ssl_context=context, proxy=f"http://{proxy.authority}")
        assert ask(stream(server, network, attempt, "wss" if tls else "ws")) == b"hello\n"
    (head,) = proxy.heads
    assert head.startswith(f"CONNECT {server.authority} HTTP/1.1\r\nHost: {server.authority}\r\n")
    assert "Proxy-Authorization" not in head


def test_an_ipv6_target_and_a_proxy_without_scheme(attempt):
    """An IPv6 target keeps its brackets; a proxy may be given as host:port."""
    with Server(echo, host="::1") as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=proxy.authority), attempt)) == b"hello\n"
    assert proxy.heads[0].startswith(f"CONNECT [::1]:{server.port} HTTP/1.1\r\n")


def test_the_proxy_gets_its_password(attempt):
    """User and password of the proxy's URL go to the proxy, decoded."""
    with Server(echo) as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=f"http://ada:p%40ss@{proxy.authority}"), attempt)) == b"hello\n"
    assert "Proxy-Authorization: Basic YWRhOnBAc3M=\r\n" in proxy.heads[0]


@pytest.mark.parametrize(
    ("variables", "scheme", "used"),
    [
        ({"HTTP_PROXY": "{}"}, "ws", True),
        ({"http_proxy": "{}"}, "ws", True),
        ({"HTTPS_PROXY": "{}"}, "ws", False),
        ({"HTTPS_PROXY": "{}"}, "wss", True),
        ({"ALL_PROXY": "{}"}, "ws", True),
        ({"all_proxy": "{}"}, "wss", True),
        ({"ALL_PROXY": "{}", "NO_PROXY": "127.0.0.1"}, "ws", False),
        ({"ALL_PROXY": "{}", "NO_PROXY": "other.test, 127.0.0.1"}, "ws", False),
        ({"ALL_PROXY": "{}", "no_proxy": "*"}, "wss", False),
        ({"ALL_PROXY": "{}", "NO_PROXY": "other.test"}, "ws", True),
        ({"HTTP_PROXY": ""}, "ws", False),
    ],
)
def test_the_environment_names_a_proxy(attempt, monkeypatch, variables, scheme, used):
    """The usual variables are read, in either case, when the request is made; NO_PROXY wins."""
    tls = scheme == "wss"
    with Server(echo, tls=serving() if tls else None) as server, Proxy() as proxy:
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(f"http://{proxy.authority}"))
        network = Network(ssl_context=trusting() if tls else None)
        assert ask(stream(server, network, attempt, scheme)) == b"hello\n"
    assert bool(proxy.heads) is used


@pytest.mark.parametrize(
    ("no_proxy", "server", "is_exempt"),
    [
        ("*", "bot.test", True),
        (" * ", "127.0.0.1", True),
        ("bot.test", "bot.test", True),
        ("BOT.test", "bot.TEST:7860", True),
        ("bot.test.", "bot.test", True),
        ("bot.test", "bot.test.", True),
        ("bot.test", "a.bot.test", True),
        (".bot.test", "a.bot.test", True),
        (".bot.test", "bot.test", True),
        ("bot.test", "robot.test", False),
        ("a.bot.test", "bot.test", False),
        ("*.test", "bot.test", False),
        ("other.test bot.test", "bot.test", True),
        (",, other.test ,\tbot.test", "bot.test", True),
        (".", "bot.test", False),
        ("", "bot.test", False),
        ("127.0.0.1", "127.0.0.1:7860", True),
        ("0.0.1", "127.0.0.1", False),
        ("localhost,127.0.0.0/8,::1", "127.0.0.1:7860", True),
        ("localhost,127.0.0.0/8,::1", "127.9.8.7", True),
        ("localhost,127.0.0.0/8,::1", "128.0.0.1", False),
        ("localhost,127.0.0.0/8,::1", "localhost:7860", True),
        ("localhost,127.0.0.0/8,::1", "[::1]:7860", True),
        ("localhost,127.0.0.0/8,::1", "[::2]:7860", False),
        ("192.168.7.9/16", "192.168.200.1", True),
        ("192.168.0.0/33", "192.168.0.0", False),
        ("192.168.0.0/x", "192.168.0.0", False),
        ("[::1]", "[::1]", True),
        ("fe80::/10", "[fe80::1%25eth0]", True),
        ("2001:db8::/32", "[2001:db8::7]:443", True),
        ("[2001:db8::]/32", "[2001:db8::7]", True),
        ("2001:db8::/32", "[2001:db9::7]", False),
        ("10.0.0.0/8", "10.test", False),
        ("bot.test:7860", "bot.test:7860", True),
        ("bot.test:7861", "bot.test:7860", False),
        ("127.0.0.1:80", "127.0.0.1", True),
        ("[::1]:7860", "[::1]:7860", True),
        ("[::1]:7861", "[::1]:7860", False),
        ("é,[,]:,/,:, 1/2/3", "bot.test", False),
    ],
)
@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_no_proxy_exempts_servers_as_in_curl(monkeypatch, no_proxy, server, is_exempt, scheme):
    """NO_PROXY has names, which stand for those below them, too, addresses and blocks of addresses."""
    monkeypatch.setenv("ALL_PROXY", "http://proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert (Network().proxy_for(f"{scheme}://{server}/") is None) is is_exempt


@pytest.mark.parametrize("door", ["base_url", "ws_url"])
def test_a_bot_in_an_exempt_block_is_reached_directly(monkeypatch, door):
    """What a desktop exports for its SOCKS proxy does not matter to a bot on this machine."""
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:9/")
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.0/8,::1")
    with EmbeddedBot() as bot, connect(getattr(bot, door), text_only=True, connect_timeout=GUARD) as client:
        assert client.ask("Hello").bot_text


def test_the_argument_wins_over_the_environment(attempt, monkeypatch):
    """`proxy=False` means none, and a URL means this one."""
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Server(echo) as server, Proxy() as proxy:
        assert ask(stream(server, Network(proxy=False), attempt)) == b"hello\n"
        assert proxy.heads == []
        assert ask(stream(server, Network(proxy=f"http://{proxy.authority}"), attempt)) == b"hello\n"
        assert len(proxy.heads) == 1


@pytest.mark.parametrize(
    ("proxy", "fault"),
    [
        ("socks5://ada:secret@host:1", "has the scheme 'socks5'"),
        ("https://ada:secret@host", "has the scheme 'https'"),
        ("http://host:x:secret", "not a valid URL"),
        ("secret:s3cr#t@host:1", "not a valid URL"),
        ("secret:secret@host:80x", "not a valid URL"),
        ("secret:a://b@host:1", "not a valid URL"),
        ("secret:2024/secret@host:1", "not a valid URL"),
        ("http://secret:2024?secret@host:1", "not a valid URL"),
        ("http://secret:2024#secret@host:1", "not a valid URL"),
    ],
)
def test_other_kinds_of_proxies_are_refused(proxy, fault):
    """What cannot work says so, and does not show user and password."""
    with pytest.raises(InvalidTransportParamsError, match="only HTTP proxies") as caught:
        Network(proxy=proxy).proxy_for("ws://host/")
    assert fault in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(Network(proxy=proxy))


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", 403, "refused to connect to 127.0.0.1:9 with 403"),
        (b"HTTP/1.0 407 Proxy Authentication Required\r\n\r\n", 407, "Put user and password into its URL"),
        (b"HTTP/1.1 204\r\n\r\n", None, "TLS"),
        (b"200 fine\r\n\r\n", None, "does not speak HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", None, "answer to CONNECT is not HTTP"),
        (b"\xff\xfe\r\n\r\n", None, "does not speak HTTP"),
        (b"HTTP/1.1 200", None, "answer to CONNECT is not HTTP"),
        (b"HTTP/1.1 403 No\r\nX: " + b"x" * 70000 + b"\r\n\r\n", None, "answer to CONNECT is not HTTP"),
    ],
)
def test_a_proxy_that_refuses_or_talks_nonsense(attempt, answer, status, text):
    """A refusal has its status; nonsense is called so; nothing is read without limit."""

    def proxy(peer):
        peer.read_head()
        peer.send(answer)

    url = websocket_url("wss://127.0.0.1:9/")
    with Server(proxy) as server, pytest.raises(ConnectionError, match=text) as caught:
        open_stream(url, Network(proxy=f"http://ada:secret@{server.authority}"), attempt.signal)
    assert getattr(caught.value, "status", None) == status
    assert "secret" not in str(caught.value)


def test_interim_answers_of_a_proxy_are_skipped(attempt):
    """A proxy that answers CONNECT with 100 and 103 before 200 has not refused."""

    def proxy(peer):
        peer.read_head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 ")
        peer.send(b"200 Connection established\r\n\r\n")
        echo(peer)

    with Server(proxy) as server:
        opened = open_stream(
            websocket_url("ws://127.0.0.1:9/"), Network(proxy=f"http://{server.authority}"), attempt.signal
        )
        assert ask(opened) == b"hello\n"


def test_interim_answers_without_end_are_refused(attempt):
    """A proxy cannot keep an attempt by interim answers alone."""

    def proxy(peer):
        peer.read_head()
        with contextlib.suppress(OSError):
            while True:
                peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    with Server(proxy) as server, pytest.raises(ConnectionError, match="answer to CONNECT is not HTTP"):
        open_stream(websocket_url("ws://127.0.0.1:9/"), Network(proxy=f"http://{server.authority}"), attempt.signal)


def test_a_silent_or_dripping_proxy_is_abandoned(attempt):
    """An abort frees a thread that waits for a proxy, even one that sends a byte now and then."""
    asked = threading.Event()

    def drip(peer):
        peer.read_head()
        asked.set()
        while not select.select([peer.sock], [], [], 0.01)[0]:
            peer.send(b"H")

    with Server(drip) as server:
        url = websocket_url("ws://127.0.0.1:9/")
        network = Network(proxy=f"http://{server.authority}")
        with running(lambda: open_stream(url, network, attempt.signal)) as opening:
            assert asked.wait(GUARD)
            attempt.abort()
            with pytest.raises(OSError):  # noqa: PT011 - which one is up to the moment
                opening.get()


def test_a_proxy_that_is_not_there(attempt):
    """A proxy that refuses the connection is a connection that failed, and the error names the proxy."""
    url = websocket_url("ws://127.0.0.1:9/")
    with pytest.raises(ProxyError, match=r"the proxy 127\.0\.0\.1:9 \(proxy= option\)") as caught:
        open_stream(url, Network(proxy="127.0.0.1:9"), attempt.signal)
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_time_passes_by_the_clock_of_the_attempt():
    """What remains shrinks as time passes: each call of a socket gets less."""
    signal = AbortController(Deadline(5.0), AbandonedError).signal
    first = socket_timeout(signal)
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
    second = socket_timeout(signal)
    assert first is not None
    assert second is not None
    assert second < first <= 5.0 + limits.value_of("grace")
