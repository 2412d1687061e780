"""The connect request: its form, accepted and refused answers, and the end of every wait."""

from __future__ import annotations

import json
import re
import socket
import threading
import tracemalloc

import httpx
import pytest
import respx

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import InvalidTransportParamsError, StartBotError
from rtvi_sync.net import http
from rtvi_sync.net.advice import origin_of
from rtvi_sync.net.dial import USER_AGENT, Network
from rtvi_sync.net.http import MAX_BODY_BYTES, MAX_REDIRECTS, post_json
from rtvi_sync.session.reconnect_policy import is_transient
from tests.support import limits
from tests.support.abandoning import AbandonedError
from tests.support.loopback import Peer, Proxy, Server, black_hole, serving, trusting
from tests.support.slowness import GUARD, at_some_limit
from tests.support.threads import running

from .endpoint import (
    PHASES,
    Endpoint,
    answering,
    bomb,
    broken_refusal,
    drip,
    dripping_chunk,
    dripping_refusal,
    silent,
    silent_refusal,
)

pytestmark = pytest.mark.inside


@pytest.fixture
def poster():
    """Return the function that `post` and `any_post` call."""
    return lambda *args, **kwargs: post_json(*args, **kwargs).document


# -- requests and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_a_document_goes_and_one_comes_back(any_post, tls):
    """The body is JSON, the headers are the caller's and the package's, and the result is the server's JSON."""
    with Endpoint(answering(b'{"ws_url": "ws://x", "n": [1, null]}'), tls=serving() if tls else None) as server:
        answer = any_post(server.url, {"config": ["\u00fc"]}, headers={"X-Mine": "1", "Authorization": "Bearer t"})
    assert answer == {"ws_url": "ws://x", "n": [1, None]}
    ((head, body),) = server.requests
    assert head.startswith("POST /connect HTTP/1.1\r\n")
    assert json.loads(body) == {"config": ["\u00fc"]}
    lines = [line.lower() for line in head.split("\r\n")]
    assert f"host: {server.authority}" in lines
    assert "content-type: application/json" in lines
    assert "accept-encoding: identity" in lines
    assert f"user-agent: {USER_AGENT}".lower() in lines
    assert "x-mine: 1" in lines
    assert "authorization: bearer t" in lines
    assert not any(line.startswith("cookie") for line in lines)


def test_the_callers_headers_replace_ours(any_post):
    """A User-Agent of the caller's, in whatever case, is sent once; Accept-Encoding stays ours."""
    with Endpoint(answering()) as server:
        any_post(server.url, headers={"user-agent": "mine", "accept-ENCODING": "gzip"})
    lines = [line.lower() for line in server.requests[0][0].split("\r\n")]
    assert sorted(line for line in lines if line.startswith(("user-agent", "accept-encoding"))) == [
        "accept-encoding: identity",
        "user-agent: mine",
    ]


@pytest.mark.parametrize(
    ("body", "document"),
    [
        (b"", {}),
        (b" \r\n", {}),
        (b"null", None),
        (b"[1]", [1]),
        (b'"text"', "text"),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a":"\xc3\xbc"}', {"a": "\u00fc"}),
    ],
)
def test_answers_that_are_taken(any_post, body, document):
    """Any JSON is taken as it is; an empty answer is an empty object."""
    with Endpoint(answering(body)) as server:
        assert any_post(server.url) == document


@pytest.mark.parametrize("body", [b"<html>", b"{", b"\xff\xfe\xff", b'{"a": ' + b"9" * 5000 + b"x}"])
def test_answers_that_are_not_json(any_post, body):
    """Any answer that is not JSON is refused."""
    with Endpoint(answering(body)) as server, pytest.raises(StartBotError, match="did not answer with JSON") as caught:
        any_post(server.url)
    assert caught.value.status == 200


@pytest.mark.parametrize(
    "content_type",
    ["", "text/html", "application/json; charset=utf-7", "application/json; charset=utf-16", "text/event-stream",
     "application/json; charset=" + "x" * 60_000, "a/b" + "; charset=utf-8" * 4_000, "\xff\xfe/\t;;=;charset=\"",
     "multipart/form-data; boundary=x", "application/json; charset=idna", "application/json; charset=bz2"],
)  # fmt: skip
def test_the_type_of_the_content_does_not_matter(any_post, content_type):
    """The bytes alone decide how a document is read; no character set, of any name or size, is looked up or applied."""
    body = '{"a": "\u00fc"}'.encode()
    with Endpoint(answering(body, "200 OK", f"Content-Type: {content_type}")) as server:
        assert any_post(server.url) == {"a": "\u00fc"}
    with (
        Endpoint(answering('{"info": "\u00fc"}'.encode(), "500 Oops", f"Content-Type: {content_type}")) as server,
        pytest.raises(StartBotError, match="answered 500: \u00fc"),
    ):
        any_post(server.url)


@pytest.mark.parametrize(
    ("body", "document"),
    [('{"a":1}'.encode("utf-16"), {"a": 1}), ('{"a":1}'.encode("utf-32-be"), {"a": 1}), (b"+AHsAfQ-", None)],
)
def test_other_encodings(any_post, body, document):
    """JSON in UTF-16 and UTF-32 is recognised by its bytes; UTF-7, which hides its text, is never taken for JSON."""
    with Endpoint(answering(body, "200 OK", "Content-Type: application/json; charset=utf-7")) as server:
        if document is not None:
            assert any_post(server.url) == document
            return
        with pytest.raises(StartBotError, match="did not answer with JSON"):
            any_post(server.url)


def test_the_depth_of_an_answer(any_post):
    """A hundred levels are accepted, one more is not: to print or copy it would exceed Python's recursion limit."""
    with Endpoint(answering(b"[" * 100 + b"]" * 100)) as server:
        assert json.dumps(any_post(server.url)) == "[" * 100 + "]" * 100
    for body in (b'{"a":' * 101 + b"1" + b"}" * 101, b"[" * 100_000):
        named = pytest.raises(StartBotError, match="answered with a document of more than 100 levels")
        with Endpoint(answering(body)) as server, named:
            any_post(server.url)


def test_chunked_answers(any_post):
    """An answer without Content-Length is taken, in chunks or until the connection ends."""

    def chunked(peer, *_):
        peer.send(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n')

    def until_the_end(peer, *_):
        peer.send(b'HTTP/1.1 200 OK\r\n\r\n{"a": 1}')

    for respond in (chunked, until_the_end):
        with Endpoint(respond) as server:
            assert any_post(server.url) == {"a": 1}


def test_a_body_of_the_largest_size(any_post):
    """An answer of exactly the limit is taken."""
    body = b'"' + b"x" * (MAX_BODY_BYTES - 2) + b'"'
    with Endpoint(answering(body)) as server:
        assert len(any_post(server.url)) == MAX_BODY_BYTES - 2


@pytest.mark.parametrize(
    ("status", "text"), [("200 OK", "more than 1048576 bytes"), ("500 Oops", "answered 500: Oops")]
)
def test_endless_bodies_are_not_read(any_post, status, text):
    """A body without end is given up after the limit, of an answer and of a refusal alike."""
    sent = [0]

    def endless(peer, *_):
        peer.send(f"HTTP/1.1 {status}\r\n\r\n".encode())
        while not peer.server.stopping.is_set():
            peer.send(b"x" * 65536)
            sent[0] += 65536

    with Endpoint(endless) as server, pytest.raises(StartBotError, match=text):
        any_post(server.url)
    assert sent[0] < 40 * MAX_BODY_BYTES  # as much as fits into the buffers of both kernels, and not much more


@pytest.mark.parametrize("status", ["200 OK", "500 Oops", "307 There"])
@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "x-gzip", "deflate", "br", "zstd", "identity, gzip"])
def test_a_bomb_does_not_go_off(any_post, encoding, status):
    """A compressed answer, refusal or redirect, even compressed twice, is not unpacked."""
    server = Endpoint(answering(bomb(), status, f"Content-Encoding: {encoding}", "Location: //elsewhere.test/"))
    with server:
        tracemalloc.start()
        with pytest.raises(StartBotError):
            any_post(server.url)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * MAX_BODY_BYTES


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "GZIP", "deflate", "zstd", "identity, identity"])
def test_compressed_answers_are_refused(any_post, encoding):
    """A compressed answer could be a bomb, and was not asked for; a refusal is still reported."""
    server = Endpoint(answering(b"\x1f\x8b", "200 OK", f"Content-Encoding: {encoding}"))
    with server, pytest.raises(StartBotError, match="Content-Encoding"):
        any_post(server.url)
    server = Endpoint(answering(b"\x1f\x8b", "401 Unauthorized", f"Content-Encoding: {encoding}"))
    with server, pytest.raises(StartBotError, match="answered 401: Unauthorized") as caught:
        any_post(server.url)
    assert caught.value.status == 401


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_around_the_body_is_limited(post, monkeypatch, tls):
    """A server that says `100 Continue` for ever, or sends chunks of one byte, is abandoned after a number of bytes."""
    monkeypatch.setattr(http, "MAX_RECEIVED_BYTES", 50_000)
    sent = [0]

    def interim(peer, *_):
        while not peer.server.stopping.is_set():
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 400)
            sent[0] += 10_000

    def crumbs(peer, *_):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not peer.server.stopping.is_set():
            peer.send(b"1\r\nx\r\n" * 400)
            sent[0] += 2_400

    for respond in (interim, crumbs):
        server = Endpoint(respond, tls=serving() if tls else None)
        with server, pytest.raises(StartBotError, match="has sent more than 50000 bytes"):
            post(server.url)
    assert sent[0] < 40 * MAX_BODY_BYTES


def test_an_encoding_that_is_none(any_post):
    """Content-Encoding: identity is no compression."""
    with Endpoint(answering(b"[]", "200 OK", "Content-Encoding: identity")) as server:
        assert any_post(server.url) == []


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        ("401 Unauthorized", b'{"info": "no key", "detail": "other"}', "answered 401: no key"),
        ("404 Not Found", b'{"detail": "Not Found here"}', "answered 404: Not Found here"),
        ("500 Internal Server Error", b"<html>", "answered 500: Internal Server Error"),
        ("500 ", b'{"info": ""}', "answered 500: Internal Server Error"),
        ("599 ", b"", "answered 599: no reason given"),
        ("503 Busy", b'["info"]', "answered 503: Busy"),
        ("400 Bad", b'{"info": {"code": 7}}', r'answered 400: \{"code": 7\}'),
        ("400 Bad", b'{"detail": ["a", 5]}', r'answered 400: \["a", 5\]'),
        ("304 Not Modified", b"", "answered 304: Not Modified"),
        ("300 Multiple Choices", b'{"info": "choose"}', "answered 300: choose"),
    ],
)
def test_a_refusal_says_why(any_post, status, body, text):
    """The message has the body's `info`, else its `detail`, else the reason phrase; the status is kept."""
    with Endpoint(answering(body, status)) as server, pytest.raises(StartBotError, match=text) as caught:
        any_post(server.url)
    assert caught.value.status == int(status[:3])


def test_validation_errors_are_told_without_their_values(any_post):
    """A FastAPI server's 422 lists the mistakes and repeats the request's values: the error leaves the values out."""
    detail = [
        {"type": "missing", "loc": ["body", "config", 0], "msg": "Field required", "input": {"token": "secret"}},
        {"type": "x", "msg": "Bad body", "input": "secret"},
        {"type": "x", "loc": "odd", "msg": "Odd"},
    ]
    server = Endpoint(answering(json.dumps({"detail": detail}).encode(), "422 Unprocessable Entity"))
    with server, pytest.raises(StartBotError) as caught:
        any_post(server.url)
    assert (
        str(caught.value)
        .partition("answered 422: ")[2]
        .startswith("body.config.0: Field required; Bad body; Odd. The server expects")
    )


def test_what_a_server_says_is_cut_and_made_printable(any_post):
    """A server cannot fill the log or move the cursor of a terminal."""
    body = json.dumps({"info": "\x1b[2J\r\n" + "x" * 10_000}).encode()
    with Endpoint(answering(body, "500 Oops")) as server, pytest.raises(StartBotError) as caught:
        any_post(server.url)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
    with Endpoint(answering(b"", "500 " + "\xff" + "Oops " * 10_000)) as server, pytest.raises(StartBotError) as caught:
        any_post(server.url)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
     b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 101 Switching\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 40_000 + b"\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;" + b"x" * 200_000 + b"\r\n{}\r\n0\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"A: b\r\n" * 40_000 + b"\r\n"],
)  # fmt: skip
def test_answers_that_are_not_http(any_post, raw):
    """A broken or cut answer is a failed request, whose error names the remedy; the size of headers is limited."""
    with Endpoint(lambda peer, *_: peer.send(raw)) as server, pytest.raises(StartBotError, match="failed") as caught:
        any_post(server.url)
    assert re.search(r"[^.]\. (Check the URL|See the server's log)", str(caught.value)), str(caught.value)


# -- redirects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("location", ["/connect/", "connect/", "{}/connect/"])
def test_redirects_within_the_origin_are_followed(any_post, status, location):
    """A 307 or 308 to the same origin is followed with method, body and headers."""

    def respond(peer, head, body):
        if head.startswith("POST /connect/ "):
            peer.answer("200 OK", b'{"ok": true}')
        else:
            where = location.format(f"http://{peer.server.authority}")
            peer.answer(f"{status} Redirect", b"", f"Location: {where}", "Set-Cookie: a=b")

    with Endpoint(respond) as server:
        assert any_post(server.url, {"a": 1}, headers={"Authorization": "Bearer t"}) == {"ok": True}
    assert len(server.requests) == 2
    for head, body in server.requests:
        assert json.loads(body) == {"a": 1}
        assert "authorization: bearer t\r\n" in head.lower()


@pytest.mark.parametrize("status", [301, 302, 303])
def test_redirects_that_change_the_method_are_refused(any_post, status):
    """A 301, 302 or 303 would become a GET: it is refused, even within the origin, and the message says where to."""
    server = Endpoint(answering(b"", f"{status} Moved", "Location: /elsewhere?token=secret"))
    with server, pytest.raises(StartBotError, match="/elsewhere, which is not followed") as caught:
        any_post(server.url)
    assert caught.value.status == status
    assert "secret" not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_nothing_is_ever_sent_to_another_origin(any_post, status):
    """A redirect to another host, port or scheme is refused; the other server hears nothing, Authorization least."""
    with Endpoint(answering()) as other:
        targets = [
            f"http://{other.authority}/",
            f"http://localhost:{other.port}/",
            f"//{other.authority}/",
            f"http://user:secret@{other.authority}/?token=secret",
            f"https://{other.authority}/",
            "ftp://127.0.0.1/",
            "http://[::1",
            "javascript:alert(1)",
            f"/connect/, http://{other.authority}/",
            f"http:\\\\{other.authority}/",
            f"http://127.0.0.1\\@{other.authority}/",
            f"/\r\nLocation: http://{other.authority}/",
            f"/\r\nSet-Cookie: a=b; Domain={other.authority}",
        ]
        for target in targets:
            with Endpoint(answering(b"", f"{status} Moved", f"Location: {target}")) as server:
                with pytest.raises(StartBotError) as caught:
                    any_post(server.url, headers={"Authorization": "Bearer t"})
                assert "secret" not in str(caught.value)
        assert other.connections == 0


def test_the_default_port_belongs_to_the_origin():
    """http://host and http://host:80 are one origin; another scheme, host or port is another."""
    assert origin_of("http://Host") == origin_of("http://host:80/x?y") == origin_of("HTTP://user@host/")
    assert origin_of("https://host") == origin_of("https://host:443")
    assert len({origin_of(url) for url in ("http://h", "https://h", "http://h:81", "http://g", "http://h.")}) == 5
    # One parser's host must not be another's user name.
    assert origin_of("http://good\\@evil/") == origin_of("http://evil/")


@pytest.mark.parametrize(
    "url", ["", "host", "ftp://host", "http://", "http://host:99999", "http://host:x", "http://[x"]
)
def test_what_is_not_a_url_of_a_server(any_post, url):
    """A bad URL is refused before anything is sent."""
    with pytest.raises(StartBotError, match="is not the URL of a server: it"):
        any_post(url)


def test_redirects_without_end(any_post):
    """A redirect loop is given up."""
    server = Endpoint(answering(b"", "307 Again", "Location: /connect"))
    with server, pytest.raises(StartBotError, match=r"more than 5 times\. Set base_url") as caught:
        any_post(server.url)
    assert caught.value.status == 307
    assert len(server.requests) == MAX_REDIRECTS + 1


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_secrets_of_the_url_do_not_show(any_post):
    """User, password and query of the URL are used and not shown, whatever goes wrong."""
    for respond in (answering(b"", "500 Oops"), answering(b"<"), lambda peer, *_: None):
        with Endpoint(respond) as server:
            url = server.url.replace("//", "//ada:secret@") + "?key=secret"
            with pytest.raises(StartBotError) as caught:
                any_post(url)
        head = server.requests[0][0]
        assert head.startswith("POST /connect?key=secret ")
        assert "Authorization: Basic YWRhOnNlY3JldA==\r\n" in head
        assert "secret" not in str(caught.value)
        assert server.authority in str(caught.value)


def test_a_header_that_is_not_valid_does_not_show(any_post):
    """A key that was read with its line break is refused, unseen, before anything is sent."""
    server = Endpoint(answering())
    with server, pytest.raises(InvalidTransportParamsError, match="Authorization") as caught:
        any_post(server.url, headers={"Authorization": "Bearer secret\n"})
    assert server.connections == 0
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "content-length", "Transfer-Encoding"])
def test_a_header_about_the_length_of_the_body_is_refused(any_post, name):
    """A header about the body's length is refused, because the request sets its own; nothing is sent."""
    server = Endpoint(answering())
    with server, pytest.raises(InvalidTransportParamsError, match=f"the header '{name}' is set by the request"):
        any_post(server.url, headers={name: "3"})
    assert server.connections == 0


def test_errors_of_hooks_do_not_show_secrets(post):
    """A client of the caller's that raises for the status itself would show the whole URL."""
    hooks = {"response": [lambda response: response.raise_for_status()]}
    server, client = Endpoint(answering(b"", "500 Oops")), httpx.Client(event_hooks=hooks, trust_env=False)
    with server, client, pytest.raises(StartBotError, match="500 Oops") as caught:
        post(f"{server.url}?key=secret", client=client)
    assert caught.value.status == 500
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_no_cookie_is_kept(post):
    """Cookies of one answer are not sent with the next request."""
    with Endpoint(answering(b"{}", "200 OK", "Set-Cookie: a=b; Path=/")) as server:
        post(server.url)
        post(server.url)
    assert all("cookie" not in head.lower() for head, _ in server.requests)


def test_netrc_is_not_read(post, monkeypatch, tmp_path):
    """An entry for the host in .netrc does not become an Authorization header."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login ada password secret\ndefault login ada password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text(netrc.read_text())
    with Endpoint(answering()) as server:
        post(server.url)
    assert "authorization" not in server.requests[0][0].lower()


# -- TLS and proxies --------------------------------------------------------------------------------------------------


def test_an_untrusted_certificate(post):
    """The message describes the fault of the certificate."""
    server = Endpoint(answering(), tls=serving("elsewhere.test"))
    with server, pytest.raises(StartBotError, match=r"not valid for '127\.0\.0\.1'"):
        post(server.url)
    with (
        Endpoint(answering(), tls=serving()) as server,
        pytest.raises(StartBotError, match="certificate is not trusted"),
    ):
        post(server.url, network=Network(proxy=False))


def test_a_server_without_tls(post):
    """https to a plain server says so."""

    def refuse(peer: Peer) -> None:
        peer.read_until(b"\0")
        peer.answer("400 Bad")

    server = Server(refuse)
    with server, pytest.raises(StartBotError, match="does not speak TLS"):
        post(f"https://{server.authority}/")


@pytest.mark.parametrize("tls", [False, True])
def test_a_request_goes_through_the_proxy(post, tls, monkeypatch):
    """http is forwarded and https tunnelled; the proxy's password goes to the proxy and the request's to the server."""
    with Endpoint(answering(b'{"ok": 1}'), tls=serving() if tls else None) as server, Proxy() as proxy:
        network = Network(ssl_context=trusting(), proxy=f"http://ada:pw@{proxy.authority}")
        assert post(server.url, headers={"Authorization": "Bearer t"}, network=network) == {"ok": 1}
        monkeypatch.setenv("HTTPS_PROXY" if tls else "HTTP_PROXY", f"http://{proxy.authority}")
        assert post(server.url, network=Network(ssl_context=trusting())) == {"ok": 1}
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert post(server.url, network=Network(ssl_context=trusting())) == {"ok": 1}
    first, second = proxy.heads
    assert first.startswith(f"CONNECT {server.authority} " if tls else f"POST {server.url} ")
    assert "Proxy-Authorization: Basic YWRhOnB3\r\n" in first
    assert "Proxy-Authorization" not in second
    assert ("Authorization: Bearer t" in first) is not tls
    assert "Authorization: Bearer t\r\n" in server.requests[0][0]


def test_a_proxy_gets_no_fragment(post):
    """A proxy that forwards a request gets the URL with a path, and without the fragment, which may be secret."""
    with Endpoint(answering()) as proxy:
        post("http://bot.test?a=1#secret", network=Network(proxy=proxy.authority))
    assert proxy.requests[0][0].startswith("POST http://bot.test/?a=1 HTTP/1.1\r\n")


@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_that_refuses(post, tls):
    """The refusal of a proxy is reported, without its password."""
    with Proxy(refuse="407 Proxy Authentication Required") as proxy:
        network = Network(proxy=f"http://ada:secret@{proxy.authority}")
        with pytest.raises(StartBotError, match="407") as caught:
            post(f"http{'s' if tls else ''}://127.0.0.1:9/", network=network)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("authority", ["[2001:db8::7]:7860", "[2001:db8::7]"])
def test_a_proxy_is_asked_for_an_ipv6_address_in_brackets(post, authority):
    """A proxy gets an IPv6 address in brackets, without which the port would be a part of the address."""
    with Endpoint(answering()) as proxy:
        post(f"http://{authority}/start", network=Network(proxy=proxy.authority))
    assert proxy.requests[0][0].startswith(f"POST http://{authority}/start HTTP/1.1\r\nHost: {authority}\r\n")


@pytest.mark.parametrize("tls", [False, True])
def test_an_ipv6_address_needs_no_proxy(post, tls):
    """An IPv6 address is reached directly, and through a tunnel if there is TLS."""
    with Endpoint(answering(), tls=serving() if tls else None, host="::1") as server, Proxy() as proxy:
        assert post(server.url) == {}
        assert post(server.url, network=Network(ssl_context=trusting(), proxy=proxy.authority)) == {}


def test_a_proxy_of_the_callers_client(post):
    """The refusal of a proxy that the caller's client uses is reported, and the advice is about the proxy."""
    with (
        Proxy(refuse="407 Proxy Authentication Required") as proxy,
        httpx.Client(proxy=f"http://ada:secret@{proxy.authority}", trust_env=False) as client,
        pytest.raises(StartBotError, match=r"407 Proxy Authentication Required\. Check the proxy that") as caught,
    ):
        post("https://127.0.0.1:9/", client=client)
    assert "secret" not in str(caught.value)


def test_a_proxy_of_another_kind(post):
    """A SOCKS proxy is refused with a message that says so."""
    with pytest.raises(InvalidTransportParamsError, match="only HTTP proxies"):
        post("http://127.0.0.1:9/", network=Network(proxy="socks5://127.0.0.1:1"))


def test_a_refused_connection_is_a_failed_request(any_post):
    """A refused connection is a failed request."""
    with pytest.raises(StartBotError, match="refused"):
        any_post("http://127.0.0.1:9/")


# -- the caller's client ----------------------------------------------------------------------------------------------


def test_a_client_of_the_callers_is_not_closed(post):
    """An HTTP client of the caller's can be used again, by us and by the caller."""
    with Endpoint(answering()) as server, httpx.Client(trust_env=False) as client:
        post(server.url, client=client)
        post(server.url, client=client)
        assert not client.is_closed
        assert client.get(server.url).status_code == 200


def test_a_client_brings_its_own_settings(post):
    """Default headers, cookies and authentication of the caller's client are sent."""
    client = httpx.Client(headers={"X-Own": "1"}, cookies={"c": "d"}, auth=("ada", "pw"), trust_env=False)
    with Endpoint(answering()) as server, client:
        post(server.url, client=client)
    head = server.requests[0][0].lower()
    assert "x-own: 1\r\n" in head
    assert "cookie: c=d\r\n" in head
    assert "authorization: basic" in head


@pytest.mark.parametrize("content", [{"json": {"a": 1}}, {"stream": httpx.ByteStream(b'{"a": 1}')}])
def test_mock_transport(post, content):
    """A client over `httpx.MockTransport` works, whether its answers are read already or not."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, **content)

    with httpx.Client(transport=httpx.MockTransport(handle)) as client:
        assert post("http://server.test/connect", {"b": 2}, client=client) == {"a": 1}
    assert json.loads(seen[0].content) == {"b": 2}


@respx.mock
def test_respx(post):
    """A client whose requests are answered by respx works, refusals and errors too."""
    respx.post("http://server.test/good").respond(json={"a": 1})
    respx.post("http://server.test/bad").respond(403, json={"info": "no"})
    respx.post("http://server.test/dead").mock(side_effect=httpx.ConnectError("no peer"))
    with httpx.Client() as client:
        assert post("http://server.test/good", client=client) == {"a": 1}
        with pytest.raises(StartBotError, match="answered 403: no"):
            post("http://server.test/bad", client=client)
        with pytest.raises(StartBotError, match="no peer"):
            post("http://server.test/dead", client=client)


# -- abandoning -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_a_slow_server_is_abandoned(any_post, abandon, phase, tls):
    """An abort frees the thread at once, whatever the server is at; the server finds the connection closed."""
    with Endpoint(phase, tls=serving() if tls else None) as server, running(lambda: any_post(server.url)) as posting:
        abandon(posting, server.reached)
        assert not server.stopping.is_set()


@pytest.mark.parametrize("refuse", [broken_refusal, silent_refusal, dripping_refusal])
def test_a_refusal_counts_whatever_becomes_of_its_body(any_post, refuse):
    """The body only explains the refusal: an attempt without limit does not wait for a missing one."""
    with Endpoint(refuse) as server, running(lambda: any_post(server.url)) as posting:
        with pytest.raises(StartBotError, match="answered 401: No") as caught:
            posting.get()
        assert not server.stopping.is_set()
    assert caught.value.status == 401
    assert not is_transient(caught.value)


@pytest.mark.parametrize("tls", [False, True])
def test_a_refusal_counts_though_bytes_around_its_body_come(post, tls):
    """All reads of the body together have one limit, whatever they bring."""
    with (
        Endpoint(dripping_chunk, tls=serving() if tls else None) as server,
        running(lambda: post(server.url)) as posting,
    ):
        with pytest.raises(StartBotError, match="answered 401: No"):
            posting.get()
        assert not server.stopping.is_set()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("refuse", [silent_refusal, dripping_refusal, dripping_chunk])
def test_the_body_of_a_refusal_is_abandoned(any_post, abandon, refuse, tls, monkeypatch):
    """An abort frees the thread at once, and its reason is raised."""
    limits.patch(monkeypatch, http_reason=GUARD)
    with Endpoint(refuse, tls=serving() if tls else None) as server, running(lambda: any_post(server.url)) as posting:
        abandon(posting, server.reached)
        assert not server.stopping.is_set()


def test_the_body_of_a_refusal_gets_no_more_than_the_attempt(post, monkeypatch):
    """The server's answer is reported, even if the limit passes while its body is read."""
    limits.patch(monkeypatch, http_reason=GUARD)
    limits.patch(monkeypatch, grace=0.05)

    def check(limit: float) -> None:
        signal = AbortController(Deadline(limit), AbandonedError).signal
        with Endpoint(dripping_refusal) as server, pytest.raises(StartBotError, match="answered 401: No"):
            post(server.url, signal=signal)

    at_some_limit(check)


def test_a_silent_tls_handshake_is_abandoned(any_post, abandon):
    """An abort wakes a thread whose client hello gets no answer."""
    hello = threading.Event()

    def handshake(peer):
        peer.sock.recv(1)
        hello.set()
        peer.hold()

    with Server(handshake) as server, running(lambda: any_post(f"https://{server.authority}/")) as posting:
        abandon(posting, hello)


def test_a_syn_without_answer_is_abandoned(post, abandon):
    """An abort frees a thread that waits for a connection."""
    begun = threading.Event()
    with black_hole() as port:

        def call():
            begun.set()
            post(f"http://127.0.0.1:{port}/")

        with running(call) as posting:
            abandon(posting, begun)


def test_a_large_request_is_abandoned(post, abandon):
    """An abort frees a thread that writes a body which the server does not read."""

    def read_the_head(peer):
        peer.read_head()
        reached.set()
        peer.hold()

    reached = threading.Event()
    with Server(read_the_head) as server, running(lambda: post(f"http://{server.authority}/", "x" * 2**25)) as posting:
        abandon(posting, reached)


def test_an_attempt_that_is_over_sends_nothing(any_post, attempt):
    """A request of an attempt that was abandoned before is not made."""
    attempt.abort()
    server = Endpoint(answering())
    with server, pytest.raises(AbandonedError):
        any_post(server.url)
    assert server.connections == 0


def test_an_abort_as_the_callers_client_connects(attempt, post):
    """A connection of the caller's client that is there just after the abort is closed, not used."""
    with Endpoint(answering()) as server, httpx.Client(trust_env=False) as client:
        build = client.build_request

        def build_and_abort(*args, **kwargs):
            request = build(*args, **kwargs)
            attempt.abort()
            return request

        client.build_request = build_and_abort  # type: ignore[method-assign]
        with pytest.raises(AbandonedError):
            post(server.url, client=client)
    assert server.requests == []


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("dripping", [False, True])
def test_a_body_on_an_old_connection_is_abandoned(post, attempt, dripping, tls):
    """A connection out of the caller's pool is shut down as well, once the head of the answer has arrived."""

    def respond(peer):
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
        if dripping:
            drip(peer)
        assert peer.wait_for_end() == b""

    answers = threading.Semaphore(0)
    hooks = {"response": [lambda _: answers.release()]}
    server = Server(respond, tls=serving() if tls else None)
    with server, httpx.Client(verify=trusting(), trust_env=False, event_hooks=hooks) as client:
        url = f"http{'s' if tls else ''}://{server.authority}/"
        assert post(url, client=client) == {}
        assert answers.acquire(timeout=GUARD)
        with running(lambda: post(url, client=client)) as posting:
            assert answers.acquire(timeout=GUARD)
            attempt.abort()
            with pytest.raises(AbandonedError):
                posting.get()
        assert server.connections == 1


@pytest.mark.parametrize("phase", PHASES)
def test_the_limit_holds_over_all_bytes(post, phase, monkeypatch):
    """The limit applies to the whole request, not to each read, even if the attempt is not abandoned."""
    limits.patch(monkeypatch, grace=0.05)
    deadline = Deadline(0.3)
    signal = AbortController(deadline, AbandonedError).signal
    with Endpoint(phase) as server, pytest.raises(StartBotError, match="timed out"):
        post(server.url, signal=signal)
    assert deadline.expired


def test_whoever_set_the_limit_says_what_happened(any_post, attempt):
    """At the limit the request still waits for its owner, whose reason it raises."""
    deadline = Deadline(1.0)
    controller = AbortController(deadline, AbandonedError)
    with Endpoint(silent) as server, running(lambda: any_post(server.url, signal=controller.signal)) as posting:
        assert server.reached.wait(GUARD)
        assert posting.goes_on(1.0 + limits.value_of("grace") / 3)
        assert deadline.expired
        controller.abort()
        with pytest.raises(AbandonedError):
            posting.get()


def test_errors_without_a_text_have_a_name(post):
    """A failure that says nothing is called by its kind."""

    def fail(request):
        raise httpx.ReadError("")

    with httpx.Client(transport=httpx.MockTransport(fail)) as client, pytest.raises(StartBotError, match="ReadError"):
        post("http://server.test/", client=client)


def test_a_silent_address_holds_up_no_request(post, monkeypatch):
    """The next address of the server is tried beside one that does not answer."""

    def respond(peer: Peer) -> None:
        peer.read_request()
        peer.answer("200 OK", b"{}")

    with Server(respond) as server, black_hole() as hole:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (hole, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with running(lambda: post("http://host.test/")) as posting:
            assert posting.get() == {}
