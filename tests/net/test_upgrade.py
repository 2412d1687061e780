"""The opening handshake: request, answer, and faults of a server."""

from __future__ import annotations

import base64
import contextlib
import logging
import select
import socket
import threading

import pytest
import websocket
from hypothesis import given, settings
from hypothesis import strategies as st
from websocket._handshake import CookieJar

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import InvalidTransportParamsError, TransportStartError
from rtvi_sync.net.dial import USER_AGENT, Network
from rtvi_sync.net.upgrade import open_websocket
from rtvi_sync.net.urls import parse_url
from tests.support import limits
from tests.support.abandoning import AbandonedError
from tests.support.loopback import Proxy, Server, black_hole, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running
from tests.support.websocket import Acceptor, accept, accept_of, lines_of, upgrade

pytestmark = pytest.mark.inside


@pytest.fixture
def shake(attempt):
    """Return a function that opens a WebSocket, closes it, and returns the bytes read after the handshake."""

    def call(url, headers=(), *, network=None, signal=attempt.signal):
        parts = parse_url(url, "ws", "wss")
        assert parts is not None
        network = network or Network(ssl_context=trusting(), proxy=False)
        sock, leftover, detach = open_websocket(parts, dict(headers), network, signal)
        detach()
        sock.close()
        return leftover

    return call


# -- the request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_the_request(shake, tls):
    """The request has the headers that RFC 6455 demands, the package's name, the caller's headers, and nothing else."""
    with Acceptor(tls=serving() if tls else None) as server:
        shake(f"ws{'s' if tls else ''}://{server.authority}/a/b?x=1&y=%20", {"X-Mine": "1", "Cookie": "c=d"})
    (head,) = server.heads
    assert head.startswith("GET /a/b?x=1&y=%20 HTTP/1.1\r\n")
    fields = lines_of(head)
    key = fields.pop("sec-websocket-key")
    assert len(base64.b64decode(key[0])) == 16
    assert fields == {
        "host": [server.authority],
        "upgrade": ["websocket"],
        "connection": ["Upgrade"],
        "sec-websocket-version": ["13"],
        "user-agent": [USER_AGENT],
        "x-mine": ["1"],
        "cookie": ["c=d"],
    }


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("", "/"),
        ("?token=a%2Fb", "/?token=a%2Fb"),
        ("/room;v=1;w?x;y", "/room;v=1;w?x;y"),
        ("//double/", "//double/"),
        ("/ü", "/%C3%BC"),
        ("/a#fragment", "/a"),
        ("/a b", "/a%20b"),
    ],
)
def test_the_path_arrives_whole(shake, path, resource):
    """Semicolons, double slashes and queries arrive as they are; a fragment stays here."""
    with Acceptor() as server:
        shake(f"ws://{server.authority}{path}")
    assert server.heads[0].split("\r\n")[0] == f"GET {resource} HTTP/1.1"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("ws://example.test/", "example.test"),
        ("ws://example.test:8080/", "example.test:8080"),
        ("ws://Example.test/", "example.test"),
        ("ws://bücher.test/", "xn--bcher-kva.test"),
        ("ws://[2001:db8::1]/", "[2001:db8::1]"),
        ("ws://[2001:db8::1]:8080/", "[2001:db8::1]:8080"),
        ("ws://user:pw@example.test/", "example.test"),
    ],
)
def test_the_host_header(shake, url, host):
    """Host is the URL's host, with its port unless that is the default one, for any server."""
    heads = []

    def proxy_and_server(peer):
        peer.read_head()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        heads.append(upgrade(peer))
        peer.wait_for_end()

    with Server(proxy_and_server) as server:
        shake(url, network=Network(proxy=server.authority))
    assert lines_of(heads[0])["host"] == [host]


def test_the_callers_headers_replace_ours(shake):
    """User-Agent and Host of the caller's, in whatever case, are sent once."""
    with Acceptor() as server:
        shake(f"ws://{server.authority}/", {"user-agent": "mine", "HOST": "virtual.test", "Origin": "http://page"})
    fields = lines_of(server.heads[0])
    assert (fields["user-agent"], fields["host"], fields["origin"]) == (["mine"], ["virtual.test"], ["http://page"])


def test_user_and_password_of_the_url(shake):
    """User and password of the URL are sent as Basic authorization, unless the caller sets an authorization."""
    with Acceptor() as server:
        shake(f"ws://ada:p%40ss@{server.authority}/")
        shake(f"ws://ada:p%40ss@{server.authority}/", {"authorization": "Bearer t"})
    assert lines_of(server.heads[0])["authorization"] == ["Basic YWRhOnBAc3M="]
    assert lines_of(server.heads[1])["authorization"] == ["Bearer t"]


@pytest.mark.parametrize(
    "headers",
    [{"X": "secret\r\nEvil: 1"}, {"X\r\nEvil": "1"}, {"Upgrade": "h2c"}, {"connection": "close"},
     {"Sec-WebSocket-Key": "secret"}, {"sec-websocket-extensions": "permessage-deflate"}, {"Content-Length": "5"},
     {"Transfer-Encoding": "chunked"}],
)  # fmt: skip
def test_headers_that_would_break_the_handshake(shake, headers):
    """Header injection and headers of the handshake itself are refused before anything is sent."""
    with Acceptor() as server:
        with pytest.raises(InvalidTransportParamsError) as caught:
            shake(f"ws://{server.authority}/", headers)
        assert server.connections == 0
    assert "secret" not in str(caught.value)


def test_through_a_proxy_with_tls(shake):
    """wss through a proxy: the handshake is between us and the server."""
    with Acceptor(tls=serving()) as server, Proxy() as proxy:
        shake(f"wss://{server.authority}/", network=Network(ssl_context=trusting(), proxy=proxy.authority))
    assert lines_of(server.heads[0])["host"] == [server.authority]
    assert "websocket" not in proxy.heads[0].lower()


# -- cookies ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def jar():
    """Yield websocket-client's jar of this process, emptied after the test."""
    CookieJar.jar.clear()
    yield CookieJar
    CookieJar.jar.clear()


COOKIES = [
    "Set-Cookie: a=b; Domain=127.0.0.1",
    "set-cookie: a=b; Domain=localhost",
    "SET-COOKIE:a=b; Domain=invalid",
    " Set-Cookie: a=b; Domain=test",
    "X: y\nSet-Cookie: a=b; Domain=test",
    "X: y\rSet-Cookie: a=b; Domain=test",
    "Set-Cookie : a=b; Domain=test",
    "X: y\n\nSet-Cookie: a=b",
    "\x0bSet-Cookie: a=b; Domain=test",
    "Set-Cookie2: a=b; Domain=test",
]


@pytest.mark.parametrize("header", COOKIES)
def test_no_cookie_gets_into_the_jar_of_the_process(shake, jar, header):
    """However a server writes Set-Cookie, it does not reach other connections; odd answers are refused as a whole."""
    with Acceptor(header) as server, contextlib.suppress(TransportStartError):
        shake(f"ws://{server.authority}/")
    assert len(server.heads) == 1
    assert jar.jar == {}


def test_cookies_of_others_are_not_sent(shake, jar):
    """Cookies that other users of websocket-client in the process received, for this or any host, are not sent."""
    for domain in ("127.0.0.1", "localhost", "invalid", "test", ""):
        jar.add(f"a=b; Domain={domain}")
    with Acceptor() as server:
        shake(f"ws://{server.authority}/")
    assert "cookie" not in lines_of(server.heads[0])


def test_two_connections_share_no_cookie(shake, jar):
    """A cookie of one connection is not sent on the next."""
    with Acceptor("Set-Cookie: a=b; Domain=127.0.0.1; Path=/") as server:
        shake(f"ws://{server.authority}/")
        shake(f"ws://{server.authority}/")
    assert ["cookie" in lines_of(head) for head in server.heads] == [False, False]


# -- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [b"", b"\x82\x01x", b"x" * 10_000, b"\r\n\r\n", b"HTTP/1.1 400 Bad\r\n\r\n"])
@pytest.mark.parametrize("tls", [False, True])
def test_what_follows_in_the_same_segment_is_kept(attempt, after, tls):
    """Bytes behind the answer are the stream's: those read with it are handed over, the others still arrive."""
    with Acceptor(after=after, tls=serving() if tls else None) as server:
        url = parse_url(f"ws{'s' if tls else ''}://{server.authority}/", "ws", "wss")
        assert url is not None
        network = Network(ssl_context=trusting(), proxy=False)
        sock, received, detach = open_websocket(url, {}, network, attempt.signal)
        while len(received) < len(after):
            received += sock.recv(65536)
        detach()
        sock.close()
    assert received == after


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_an_answer_in_pieces(shake, size):
    """The answer may arrive in pieces of any size."""

    def pieces(peer):
        whole = b"HTTP/1.1 101 OK\r\nupgrade: WebSocket\r\nCONNECTION: keep-alive, Upgrade\r\nServer: \xe9\r\n"
        whole += f"sec-websocket-accept: {accept_of(peer.read_head())}\r\n\r\n".encode()
        for start in range(0, len(whole), size):
            peer.send(whole[start : start + size])
        peer.wait_for_end()

    with Server(pieces) as server:
        assert shake(f"ws://{server.authority}/") == b""


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "token may be missing or wrong"),
        (403, "good for one connection"),
        (404, "Check the path of the URL (ws_url)"),
        (400, "Check ws_url"),
        (405, "Check the path of the URL (ws_url)"),
        (426, "Check the path of the URL (ws_url)"),
        (429, "Try again later"),
        (500, "See the server's log"),
        (503, "Try again later"),
        (200, "Check the path of the URL (ws_url)"),
        (301, "Redirects are not followed"),
        (307, "Redirects are not followed"),
    ],
)
def test_a_refusal_says_why(shake, status, hint):
    """The status is kept, and the usual ones have a hint; a redirect is not followed."""
    with Acceptor() as other:

        def refuse(peer):
            peer.read_head()
            peer.answer(f"{status} No", b"secret", f"Location: ws://{other.authority}/")

        with Server(refuse) as server, pytest.raises(TransportStartError) as caught:
            shake(f"ws://ada:secret@{server.authority}/path?token=secret")
        assert other.connections == 0
    assert caught.value.status == status
    verb = "refused" if status >= 400 else "answered"
    assert f"ws://{server.authority}/path {verb} the WebSocket handshake with {status}: No. " in str(caught.value)
    assert hint in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("length", ["99999999999", "-5", "abc", "1e9", "50"])
def test_the_body_of_a_refusal_is_not_waited_for(shake, length):
    """A refusal that promises a body and never sends it is a refusal at once, or after a second for a short one."""

    def promise(peer):
        peer.read_head()
        peer.send(f"HTTP/1.1 403 Forbidden\r\nContent-Length: {length}\r\n\r\n".encode())
        peer.hold()

    with Server(promise) as server, pytest.raises(TransportStartError) as caught:
        shake(f"ws://{server.authority}/")
    assert caught.value.status == 403


GOOD = ("HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: {}")


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_an_answer_without_what_the_protocol_asks_for(shake, missing):
    """An answer without Upgrade, Connection or the right Accept makes the handshake fail."""

    def incomplete(peer):
        lines = [line for n, line in enumerate(GOOD) if n != missing]
        peer.send("\r\n".join([*lines, "", ""]).format(accept_of(peer.read_head())).encode())
        peer.wait_for_end()

    with Server(incomplete) as server, pytest.raises(TransportStartError, match=r"handshake with .* failed"):
        shake(f"ws://{server.authority}/")


@pytest.mark.parametrize("extension", ["permessage-deflate", "x-mine; a=b", ""])
def test_an_extension_that_nobody_asked_for(shake, extension):
    """None is offered, so a server that claims one is refused: compression would undo every limit of size."""
    server = Acceptor(f"sec-WebSocket-extensions: {extension}")
    with server, pytest.raises(TransportStartError, match="extension that was not requested"):
        shake(f"ws://{server.authority}/")
    assert "sec-websocket-extensions" not in lines_of(server.heads[0])


@pytest.mark.parametrize("asked", [None, "chat", "xmpp, chat"])
@pytest.mark.parametrize("answered", ["mine", "xmp", "Chat", ""])
def test_a_subprotocol_that_nobody_asked_for(shake, asked, answered):
    """RFC 6455, 4.1: a server that speaks another protocol than it was asked to is refused."""
    headers = {} if asked is None else {"Sec-WebSocket-Protocol": asked}
    server = Acceptor(f"sec-WebSocket-protocol: {answered}")
    with server, pytest.raises(TransportStartError, match="subprotocol that was not requested"):
        shake(f"ws://{server.authority}/", headers)


@pytest.mark.parametrize("asked", ["chat", "xmpp,chat", "xmpp, chat , x"])
def test_a_subprotocol_that_the_caller_asked_for(shake, asked):
    """A subprotocol that the caller asks for in a header may be taken by the server, or not."""
    for answer in ["Sec-WebSocket-Protocol:  chat "], []:
        with Acceptor(*answer) as server:
            shake(f"ws://{server.authority}/", {"sec-websocket-protocol": asked})
        assert lines_of(server.heads[0])["sec-websocket-protocol"] == [asked]


def test_an_answer_to_another_key(shake):
    """An Accept that does not belong to our key is refused: a cache, or no WebSocket server."""

    def cached(peer):
        peer.read_head()
        peer.send("\r\n".join([*GOOD, "", ""]).format("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").encode())
        peer.wait_for_end()

    with Server(cached) as server, pytest.raises(TransportStartError, match=r"handshake with .* failed"):
        shake(f"ws://{server.authority}/")


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 101", b"nonsense\r\n\r\n", b"HTTP/2 101 OK\r\n\r\n", b"HTTP/1.1 1010 OK\r\n\r\n",
     b"HTTP/1.1\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 101 OK\r\nno colon\r\n\r\n", b"HTTP/1.1 101 OK\r\n: x\r\n\r\n",
     b"HTTP/1.1 101 OK\r\nConnection: \xff\r\n\r\n", b"HTTP/1.1 403 \xff\r\nX: \xff\r\n\r\n"],
)  # fmt: skip
def test_answers_that_are_none(shake, answer):
    """Whatever a server sends instead of an answer, it is one kind of error."""

    def talk(peer):
        peer.read_head()
        peer.send(answer)

    with Server(talk) as server, pytest.raises(TransportStartError):
        shake(f"ws://{server.authority}/")


def test_a_line_that_is_no_header(shake):
    """An answer that would be right, but for a line that is no header, fails the handshake: it may hide a header."""

    def talk(peer):
        lines = [*GOOD, "Sec-WebSocket-Extensions : x", "", ""]
        peer.send("\r\n".join(lines).format(accept_of(peer.read_head())).encode())

    with Server(talk) as server, pytest.raises(TransportStartError, match="no header"):
        shake(f"ws://{server.authority}/")


def test_interim_answers_are_skipped(shake):
    """A server may say 100 or 103 before it accepts."""

    def handler(peer):
        head = peer.read_head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        accept(peer, head)

    with Server(handler) as server:
        assert shake(f"ws://{server.authority}/") == b""


@pytest.mark.parametrize("flood", [b"X: " + b"x" * 200_000, b"X: y\r\n" * 40_000])
def test_the_head_is_bounded(shake, flood):
    """A head of more than 64 KiB is not read on."""
    read = []

    def talk(peer):
        peer.read_head()
        peer.send(b"HTTP/1.1 101 OK\r\n" + flood)
        read.append(peer.wait_for_end())

    with Server(talk) as server, pytest.raises(TransportStartError, match="more than 65536 bytes"):
        shake(f"ws://{server.authority}/")


@settings(max_examples=60)
@given(answer=st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda t: f"HTTP/1.1 101 {t}\r\n".encode())))
def test_any_answer_is_refused_or_taken(answer):
    """Any bytes: the call returns or raises its own error, and the jar stays empty."""
    signal = AbortController(Deadline(None), AbandonedError).signal

    def talk(peer):
        peer.read_head()
        peer.send(answer + b"\r\n\r\n")

    with Server(talk) as server:
        url = parse_url(f"ws://{server.authority}/", "ws")
        assert url is not None
        with pytest.raises(TransportStartError):
            open_websocket(url, {}, Network(proxy=False), signal)
    assert CookieJar.jar == {}


def test_the_traces_of_websocket_client_show_no_secret(shake, caplog):
    """The library's own tracing, if it is on, shows no token."""
    assert not websocket.isEnabledForDebug()
    websocket.enableTrace(True, handler=caplog.handler)
    try:
        with Acceptor("Set-Cookie: hush") as server:
            shake(f"ws://ada:hush@{server.authority}/?token=hush", {"X-Key": "hush"})
    finally:
        websocket.enableTrace(False)
        logging.getLogger("websocket").removeHandler(caplog.handler)  # which older versions leave there
    assert "--- request header ---" in caplog.text
    assert "hush" not in caplog.text
    assert lines_of(server.heads[0])["x-key"] == ["hush"]


# -- failures below ---------------------------------------------------------------------------------------------------


def test_a_refused_connection_names_the_address(shake):
    """A refused connection names the address, without its secrets."""
    with pytest.raises(TransportStartError, match=r"ws://127\.0\.0\.1:9/p cannot be reached: .*refused") as caught:
        shake("ws://ada:secret@127.0.0.1:9/p?token=secret")
    assert "secret" not in str(caught.value)


def plain(peer):
    """Answer a client hello in plain text."""
    peer.sock.recv(1)
    peer.answer("400 Bad Request")


def test_a_plain_server_behind_wss(shake):
    """Pipecat's runner advertises wss:// without having TLS: the message says so, and gives the URL to use."""
    with Server(plain) as server, pytest.raises(TransportStartError) as caught:
        shake(f"wss://ada:secret@{server.authority}/ws?token=secret")
    assert f"wss://{server.authority}/ws has no TLS that can be used: the server does not speak TLS" in str(
        caught.value
    )
    assert f"'ws://{server.authority}/ws'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_nobody_on_the_line_can_talk_a_program_out_of_tls(shake, monkeypatch):
    """For a server that is not nearby, an answer in plain text brings no advice to do without TLS."""
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **more: look_up("127.0.0.1", *rest, **more))
    with Server(plain) as server, pytest.raises(TransportStartError, match="does not speak TLS") as caught:
        shake(f"wss://bot.example:{server.port}/ws")
    assert "ws://" not in str(caught.value).replace("wss://", "")


def test_a_proxy_that_refuses(shake):
    """The refusal of the proxy is reported as it is."""
    with (
        Proxy(refuse="403 Forbidden") as proxy,
        pytest.raises(TransportStartError, match=r"the proxy .* 403") as caught,
    ):
        shake("ws://127.0.0.1:9/", network=Network(proxy=proxy.authority))
    assert caught.value.status == 403


# -- abandoning -------------------------------------------------------------------------------------------------------


def silent(peer):
    """Answer nothing."""
    peer.read_head()
    peer.server.reached.set()
    peer.hold()


def drip(peer):
    """Send an answer byte by byte, without an end."""
    peer.read_head()
    peer.send(b"HTTP/1.1 101 OK\r\nX: ")
    peer.server.reached.set()
    while not select.select([peer.sock], [], [], 0.01)[0]:
        peer.send(b"x")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("phase", [silent, drip])
def test_a_slow_answer_is_abandoned(shake, abandon, phase, tls):
    """An abort frees the thread at once, and its reason is raised."""
    server = Server(phase, tls=serving() if tls else None)
    with server, running(lambda: shake(f"ws{'s' if tls else ''}://{server.authority}/")) as opening:
        abandon(opening, server.reached)
        assert not server.stopping.is_set()


def test_a_silent_tls_handshake_is_abandoned(shake, abandon):
    """An abort during the TLS handshake raises its reason, not the TLS error."""
    hello = threading.Event()

    def handshake(peer):
        peer.sock.recv(1)
        hello.set()
        peer.hold()

    with Server(handshake) as server, running(lambda: shake(f"wss://{server.authority}/")) as opening:
        abandon(opening, hello)


def test_a_silent_proxy_is_abandoned(shake, abandon):
    """An abort while a proxy does not answer raises its reason."""
    asked = threading.Event()

    def proxy(peer):
        peer.read_head()
        asked.set()
        peer.hold()

    with Server(proxy) as server:
        network = Network(proxy=server.authority)
        with running(lambda: shake("ws://127.0.0.1:9/", network=network)) as opening:
            abandon(opening, asked)


def test_a_syn_without_answer_is_abandoned(shake, attempt):
    """An abort while the connection is not answered raises its reason."""
    with black_hole() as port, running(lambda: shake(f"ws://127.0.0.1:{port}/")) as opening:
        attempt.abort()
        with pytest.raises(AbandonedError):
            opening.get()


def test_whoever_set_the_limit_says_what_happened():
    """At the limit the handshake still waits for the owner of the attempt, whose reason it raises."""
    deadline = Deadline(1.0)
    controller = AbortController(deadline, AbandonedError)
    server = Server(silent)
    with server:
        url = parse_url(f"ws://{server.authority}/", "ws")
        assert url is not None
        with running(lambda: open_websocket(url, {}, Network(proxy=False), controller.signal)) as opening:
            assert server.reached.wait(GUARD)
            assert opening.goes_on(1.0 + limits.value_of("grace") / 3)
            assert deadline.expired
            controller.abort()
            with pytest.raises(AbandonedError):
                opening.get()
