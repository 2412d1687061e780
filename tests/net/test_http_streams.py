"""The answer to an action without a session: streams of events and single documents, their limits and their ends."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import threading
import tracemalloc

import httpx
import pytest
import respx
from hypothesis import given, settings
from hypothesis import strategies as st

from rtvi_sync.concurrency.abort import AbortController
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import (
    ActionEndpointNotSetError,
    DisconnectedError,
    InvalidTransportParamsError,
    ProtocolError,
    RequestRejectedError,
    RequestTimeoutError,
)
from rtvi_sync.net import http
from rtvi_sync.net.dial import Network
from rtvi_sync.net.http import MAX_BODY_BYTES, MAX_EVENT_BYTES, post_stream
from tests.support import limits
from tests.support.abandoning import AbandonedError
from tests.support.loopback import Server, black_hole, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

from .endpoint import PHASES, Endpoint, answering, bomb, drip, silent

pytestmark = pytest.mark.inside

EVENTS = "Content-Type: text/event-stream; charset=utf-8"
DOCUMENTED = (DisconnectedError, ProtocolError)


def event(text: bytes) -> bytes:
    """Return an event as Pipecat's servers of RTVI 0.3 send it."""
    return b"data: " + base64.b64encode(text) + b"\n\n"


def streaming(*texts: bytes):
    """Return a response whose events are `texts`."""
    return answering(b"".join(map(event, texts)), "200 OK", EVENTS)


def begin(peer, *headers: str) -> None:
    """Send the head of an event stream in chunks."""
    peer.send("\r\n".join(["HTTP/1.1 200 OK", EVENTS, "Transfer-Encoding: chunked", *headers, "", ""]).encode())


def chunk(content: bytes) -> bytes:
    """Return a text as it stands in a chunked body."""
    return b"%x\r\n%b\r\n" % (len(content), content)


@pytest.fixture
def poster():
    """Return the function that `post` and `any_post` call."""
    return post_stream


def texts_of(body: bytes, content_type: str = "text/event-stream", pieces: list[bytes] | None = None) -> list[bytes]:
    """Yield the events read from an answer that arrives in `pieces` (None: at once), without a network."""

    class Body(httpx.SyncByteStream):
        def __iter__(self):
            yield from [body] if pieces is None else pieces

    def handle(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Type": content_type}, stream=Body())

    signal = AbortController(Deadline(None), AbandonedError).signal
    with httpx.Client(transport=httpx.MockTransport(handle)) as client:
        stream = post_stream(
            "http://server.test/", b"null", headers={}, network=Network(proxy=False), signal=signal, client=client
        )
        return list(stream)


# -- requests and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_a_document_goes_and_messages_come_back(any_post, tls):
    """The body is JSON, both kinds of answer are asked for, and each event is handed out without its base64."""
    with Endpoint(streaming(b'{"a": 1}', b"\xc3\xbc", b""), tls=serving() if tls else None) as server:
        assert list(any_post(server.url, {"b": 2}, headers={"X-Mine": "1"})) == [b'{"a": 1}', b"\xc3\xbc"]
    ((head, body),) = server.requests
    lines = [line.lower() for line in head.split("\r\n")]
    assert head.startswith("POST /connect HTTP/1.1\r\n")
    assert "accept: text/event-stream, application/json" in lines
    assert "accept-encoding: identity" in lines
    assert "x-mine: 1" in lines
    assert json.loads(body) == {"b": 2}


def test_the_callers_accept_replaces_ours(any_post):
    """A caller who wants one kind of answer only says so, once."""
    with Endpoint(answering()) as server:
        list(any_post(server.url, headers={"accept": "application/json"}))
    lines = [line.lower() for line in server.requests[0][0].split("\r\n")]
    assert [line for line in lines if line.startswith("accept:")] == ["accept: application/json"]


def test_messages_come_as_they_are_sent(any_post):
    """Each message is there before the server sends the next one."""
    heard = threading.Semaphore(0)

    def respond(peer, *_):
        begin(peer)
        for number in range(3):
            peer.send(chunk(event(b"%d" % number)))
            assert heard.acquire(timeout=GUARD)
        peer.send(chunk(b""))

    with Endpoint(respond) as server:
        for number, text in enumerate(any_post(server.url)):
            assert text == b"%d" % number
            heard.release()


@pytest.mark.parametrize(
    ("content_type", "body", "texts"),
    [
        ("application/json", b'{"a": 1}', [b'{"a": 1}']),
        ("application/json; charset=utf-7", b'{"a": 1}', [b'{"a": 1}']),
        ("", b"no JSON", [b"no JSON"]),
        ("text/html", b" \r\n", []),
        ("text/event-streams", b"", []),
        ("\xff/;", b"data: e30=\n\n", [b"data: e30=\n\n"]),
    ],
)
def test_one_document(any_post, content_type, body, texts):
    """Whatever is no event stream is one text as a whole; nothing is none."""
    with Endpoint(answering(body, "200 OK", f"Content-Type: {content_type}")) as server:
        assert list(any_post(server.url)) == texts


@pytest.mark.parametrize(
    "content_type",
    ["text/event-stream", "Text/Event-Stream;charset=utf-7", "text/event-stream; charset=bz2",
     "text/event-stream; charset=utf-16", "text/event-stream ; x=" + "y" * 50_000],
)  # fmt: skip
def test_an_event_stream_by_its_type(any_post, content_type):
    """The type decides, in any case; the character set that the server names is not applied."""
    with Endpoint(answering(event(b"\xc3\xbc"), "200 OK", f"Content-Type: {content_type}")) as server:
        assert list(any_post(server.url)) == [b"\xc3\xbc"]


@pytest.mark.parametrize(
    "body",
    [
        b"data:e30=\n\n",
        b"data: e30=\r\n\r\n",
        b"data: e30=\r\r",
        b"\xef\xbb\xbfdata: e30=\n\n",
        b": a comment\n\n: another\n\ndata: e30=\n\n",
        b"event: message\nid: 7\nretry: 10\nunknown: x\nnothing\ndata: e30=\n\n",
        b"event: ping\n\nid: 8\n\ndata:\n\ndata: e30=\n\n",
        b"data: e3\ndata: 0=\n\n",
        b"data:   e30=  \n\n",
        b"data: e30=\n\n\n\n\n",
        b"retry: " + b"9" * 10_000 + b"\ndata: e30=\n\n",
        b"data: e30=",
        b"data: e30=\r",
    ],
)
def test_forms_of_an_event(body):
    """Whatever the standard allows around an event; the last one may lack its blank line if it is whole."""
    assert texts_of(body) == [b"{}"]


@respx.mock
def test_respx(post):
    """A client whose requests are answered by respx works, errors too."""
    respx.post("http://server.test/good").respond(content=event(b"{}"), content_type="text/event-stream")
    respx.post("http://server.test/bad").respond(403, json={"info": "no"})
    respx.post("http://server.test/dead").mock(side_effect=httpx.ConnectError("no peer"))
    with httpx.Client() as client:
        assert list(post("http://server.test/good", client=client)) == [b"{}"]
        with pytest.raises(RequestRejectedError, match="answered 403: no"):
            list(post("http://server.test/bad", client=client))
        with pytest.raises(DisconnectedError, match="no peer"):
            list(post("http://server.test/dead", client=client))


# -- limits -----------------------------------------------------------------------------------------------------------


def test_the_largest_message():
    """A message of exactly the limit is taken, as an event and as a document; one byte more is not."""
    largest = b"x" * MAX_EVENT_BYTES
    assert texts_of(event(largest)) == [largest]
    assert texts_of(largest, "text/plain") == [largest]
    with pytest.raises(ProtocolError, match=f"more than {MAX_EVENT_BYTES} bytes"):
        texts_of(event(largest + b"x"))
    with pytest.raises(ProtocolError, match=f"more than {MAX_EVENT_BYTES} bytes"):
        texts_of(largest + b"x", "text/plain")


@pytest.mark.parametrize(
    "endless", [b"x" * 1000, b"data: " + b"eHh4" * 1000 + b"\n", b"data:ab\n", b"data\r", b":\n", b"\n", b"id: 1\n"]
)
def test_what_never_becomes_an_event(any_post, monkeypatch, endless):
    """A line or an event without end is given up by the memory it takes, not read on."""
    monkeypatch.setattr(http, "MAX_ENCODED_BYTES", 500_000)
    sent = [0]

    def respond(peer, *_):
        begin(peer)
        content = chunk(endless * (20_000 // len(endless)))
        while not peer.server.stopping.is_set():
            peer.send(content)
            sent[0] += len(content)

    with Endpoint(respond) as server:
        tracemalloc.start()
        with pytest.raises(ProtocolError, match="answered with more than"):
            list(any_post(server.url))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4_000_000
    assert sent[0] < 20_000_000  # as much as fits into the buffers of both kernels, and not much more


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
def test_a_bomb_does_not_go_off(any_post, content_type):
    """A compressed stream is not unpacked."""
    server = Endpoint(answering(bomb(), "200 OK", "Content-Encoding: gzip, gzip", f"Content-Type: {content_type}"))
    with server:
        tracemalloc.start()
        with pytest.raises(ProtocolError, match="Content-Encoding"):
            list(any_post(server.url))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 2 * MAX_BODY_BYTES


def test_a_stream_is_longer_than_a_message(post, monkeypatch):
    """The received bytes are counted from 0 again after each event: a stream may have any length."""
    monkeypatch.setattr(http, "MAX_ENCODED_BYTES", 200_000)
    texts = [b"x" * 100_000] * 10

    def respond(peer, *_):
        begin(peer)
        peer.send(b"".join(chunk(event(text)) for text in texts) + chunk(b""))

    with Endpoint(respond) as server:
        assert list(post(server.url)) == texts


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_around_the_events_is_limited(post, monkeypatch, tls):
    """A server that says `100 Continue` for ever, or sends chunks of one byte, is abandoned after a number of bytes."""
    monkeypatch.setattr(http, "MAX_ENCODED_BYTES", 25_000)

    def interim(peer, *_):
        while not peer.server.stopping.is_set():
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 400)

    def crumbs(peer, *_):
        begin(peer)
        while not peer.server.stopping.is_set():
            peer.send(chunk(b"x") * 400)

    for respond in (interim, crumbs):
        server = Endpoint(respond, tls=serving() if tls else None)
        with server, pytest.raises(DisconnectedError, match="has sent more than 50000 bytes"):
            list(post(server.url))


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b'{"a": 1}', b"e30", b"e30=e30=", b"e-_=", b"\xff\xff", b"e30= x", "\u00fc".encode()])
def test_events_that_are_not_base64(any_post, data):
    """An event that is something else is refused, after those before it."""
    body = event(b"{}") + b"data: " + data + b"\n\n" + event(b"{}")
    with Endpoint(answering(body, "200 OK", EVENTS)) as server:
        stream = any_post(server.url)
        assert next(stream) == b"{}"
        with pytest.raises(
            ProtocolError, match=r"base64 of a JSON text.* Check that its URL is the endpoint that takes"
        ):
            next(stream)
        assert list(stream) == []


def test_what_a_server_sends_is_cut_and_made_printable(any_post):
    """A server cannot fill the log or move the cursor of a terminal."""
    body = b"data: \x1b[2J" + b"y" * 10_000 + b"\n\n"
    with Endpoint(answering(body, "200 OK", EVENTS)) as server, pytest.raises(ProtocolError) as caught:
        list(any_post(server.url))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        ("401 Unauthorized", b'{"info": "no key"}', "answered 401: no key. Set params.headers"),
        ("404 Not Found", b'{"detail": "Not Found"}', "answered 404: Not Found. Check base_url and endpoints.action"),
        ("500 Internal Server Error", b'{"fail": 500, "detail": "no such bot"}', "answered 500: no such bot"),
        ("422 Odd", b'{"detail": [{"loc": ["body", "actions"], "msg": "Missing"}]}', "422: body.actions: Missing"),
        ("503 Busy", b"<html>", "answered 503: Busy"),
        ("301 Moved", b"", "answered 301: Moved"),
    ],
)
def test_a_refusal_says_why(any_post, status, body, text):
    """The message has the body's `info`, else its `detail`, else the reason phrase; the status is kept."""
    with Endpoint(answering(body, status)) as server, pytest.raises(RequestRejectedError, match=text) as caught:
        list(any_post(server.url))
    assert caught.value.status == int(status[:3])
    assert caught.value.response is None


@pytest.mark.parametrize("target", ["https://127.0.0.1:9/", "//elsewhere.test/?key=secret", "http://[::1", "ftp://x/"])
def test_redirects_to_elsewhere(any_post, target):
    """A redirect to another origin is a refusal, and nothing is sent there."""
    server = Endpoint(answering(b"", "307 There", f"Location: {target}"))
    with server, pytest.raises((RequestRejectedError, DisconnectedError)) as caught:
        list(any_post(server.url))
    assert "secret" not in str(caught.value)
    assert len(server.requests) == 1


def test_redirects_within_the_origin(any_post):
    """A 308 within the origin is followed, and the answer to the second request counts."""

    def respond(peer, head, _):
        if head.startswith("POST /elsewhere "):
            streaming(b"{}")(peer)
        else:
            peer.answer("308 There", b"", "Location: /elsewhere")

    with Endpoint(respond) as server:
        assert list(any_post(server.url, {"a": 1})) == [b"{}"]
    assert [json.loads(body) for _, body in server.requests] == [{"a": 1}] * 2


def test_a_refused_connection_is_a_broken_connection(any_post):
    """A server that cannot be reached is a broken connection, caused by the network."""
    with pytest.raises(DisconnectedError, match="refused") as caught:
        list(any_post("http://127.0.0.1:9/?key=secret"))
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.initiator == "network"
    assert "secret" not in str(caught.value)


def test_an_untrusted_certificate(post):
    """A server whose certificate is not trusted is a broken connection, too."""
    with Endpoint(answering(), tls=serving()) as server, pytest.raises(DisconnectedError, match="is not trusted"):
        list(post(server.url, network=Network(proxy=False)))


@pytest.mark.parametrize("url", ["", "host", "ftp://host", "http://[x"])
def test_what_is_not_a_url_of_a_server(any_post, url):
    """Without a URL there is no endpoint."""
    with pytest.raises(ActionEndpointNotSetError, match="is not the URL of a server: it"):
        list(any_post(url))


def test_a_header_that_is_not_valid(any_post):
    """A header that is not valid is refused, unseen, before anything is sent."""
    with pytest.raises(InvalidTransportParamsError, match="Authorization") as caught:
        list(any_post("http://127.0.0.1:9/", headers={"Authorization": "Bearer secret\n"}))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(lambda peer: peer.send(chunk(event(b"{}"))), id="between two events"),
        pytest.param(lambda peer: peer.send(chunk(event(b"{}") + b"data: e3")), id="in an event"),
        pytest.param(lambda peer: peer.send(chunk(event(b"{}"))[:-4]), id="in a chunk"),
        pytest.param(lambda peer: peer.send(chunk(event(b"{}")) + b"zz\r\n"), id="no chunk"),
    ],
)
def test_a_stream_that_breaks_off(any_post, rest):
    """Complete events are returned, and then the error reports the broken connection."""

    def respond(peer, *_):
        begin(peer)
        peer.send(chunk(event(b'{"a": 1}')))
        rest(peer)

    with Endpoint(respond) as server:
        received = iter(any_post(server.url))
        assert next(received) == b'{"a": 1}'
        with pytest.raises(DisconnectedError, match=r"failed: .*See the server's log"):
            list(received)


@pytest.mark.parametrize("rest", [b"data: e3", b"data: eyJhIjogMX0", b"data: eyJh", b"data: eyJhIjogMX0=\nda\ndata: x"])
def test_a_stream_that_ends_in_the_midst_of_an_event(any_post, rest):
    """Without a length the end of the connection is the end of the stream: that an event was cut off is seen all the
    same.
    """

    def respond(peer, *_):
        peer.send(f"HTTP/1.1 200 OK\r\n{EVENTS}\r\n\r\n".encode() + event(b"{}") + rest)

    with Endpoint(respond) as server:
        stream = any_post(server.url)
        assert next(stream) == b"{}"
        with pytest.raises(DisconnectedError, match=r"broke off inside an event\. See the server's log"):
            next(stream)


def test_a_client_that_raises(post):
    """Errors of the caller's own client are raised unchanged."""

    def handle(_: httpx.Request) -> httpx.Response:
        raise KeyError("mine")

    with (
        httpx.Client(transport=httpx.MockTransport(handle)) as client,
        pytest.raises(DisconnectedError, match="The http_client raised KeyError: 'mine'"),
    ):
        list(post("http://server.test/", client=client))


# -- abandoning -------------------------------------------------------------------------------------------------------


def silent_stream(peer, *_):
    """Send an event, and then nothing."""
    begin(peer)
    peer.send(chunk(event(b"{}")))
    peer.server.reached.set()
    peer.hold()


def dripping_stream(peer, *_):
    """Send an event, and then one that never ends."""
    peer.send(f"HTTP/1.1 200 OK\r\n{EVENTS}\r\n\r\n".encode() + event(b"{}") + b"data: ")
    drip(peer)


def pinging_stream(peer, *_):
    """Send comments for ever, as servers do to keep a line open."""
    begin(peer)
    peer.server.reached.set()
    with contextlib.suppress(OSError):
        while not peer.server.stopping.wait(0.01):
            peer.send(chunk(b": ping\n\n"))


ALL_PHASES = [*PHASES, silent_stream, dripping_stream, pinging_stream]


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("phase", ALL_PHASES)
def test_a_slow_server_is_abandoned(any_post, abandon, phase, tls):
    """An abort frees the thread at once, whatever the server is at; the server finds the connection closed."""
    server = Endpoint(phase, tls=serving() if tls else None)
    with server, running(lambda: list(any_post(server.url))) as posting:
        abandon(posting, server.reached)
        assert not server.stopping.is_set()


def test_a_syn_without_answer_is_abandoned(post, abandon):
    """An abort frees a thread that waits for a connection."""
    begun = threading.Event()
    with black_hole() as port:

        def call():
            begun.set()
            list(post(f"http://127.0.0.1:{port}/"))

        with running(call) as posting:
            abandon(posting, begun)


@pytest.mark.parametrize("tls", [False, True])
def test_a_stream_on_an_old_connection_is_abandoned(post, attempt, tls):
    """A connection out of the caller's pool is shut down as well, once the head of the answer has arrived."""

    def respond(peer):
        peer.read_request()
        begin(peer)
        peer.send(chunk(event(b"{}")) + chunk(b""))
        peer.read_request()
        begin(peer)
        peer.send(chunk(event(b"{}")))
        assert peer.wait_for_end() == b""

    server = Server(respond, tls=serving() if tls else None)
    with server, httpx.Client(verify=trusting(), trust_env=False) as client:
        url = f"http{'s' if tls else ''}://{server.authority}/"
        assert list(post(url, client=client)) == [b"{}"]
        stream = post(url, client=client)
        assert next(stream) == b"{}"
        with running(lambda: list(stream)) as posting:
            attempt.abort()
            with pytest.raises(AbandonedError):
                posting.get()
        assert server.connections == 1


def test_closing_it_ends_the_connection(any_post):
    """A generator that is closed early leaves nothing: the server finds the connection closed."""
    ended = threading.Event()

    def respond(peer, *_):
        begin(peer)
        peer.send(chunk(event(b"{}")))
        peer.wait_for_end()
        ended.set()

    with Endpoint(respond) as server:
        stream = any_post(server.url)
        assert next(stream) == b"{}"
        stream.close()
        assert ended.wait(GUARD)


@pytest.mark.parametrize("phase", ALL_PHASES)
def test_the_limit_holds_over_all_bytes(post, phase, monkeypatch):
    """The limit applies to the whole request, not to each read, even if the attempt is not abandoned."""
    limits.patch(monkeypatch, grace=0.05)
    deadline = Deadline(0.2)
    signal = AbortController(deadline, AbandonedError).signal
    with Endpoint(phase) as server, pytest.raises(RequestTimeoutError, match="timed out"):
        list(post(server.url, signal=signal))
    assert deadline.expired


def test_whoever_set_the_limit_says_what_happened(any_post):
    """At the limit the request still waits for its owner, whose reason it raises."""
    deadline = Deadline(1.0)
    controller = AbortController(deadline, AbandonedError)
    with Endpoint(silent) as server, running(lambda: list(any_post(server.url, signal=controller.signal))) as posting:
        assert server.reached.wait(GUARD)
        assert posting.goes_on(1.0 + limits.value_of("grace") / 3)
        assert deadline.expired
        controller.abort()
        with pytest.raises(AbandonedError):
            posting.get()


# -- any bytes --------------------------------------------------------------------------------------------------------


def cut(body: bytes, seed: int) -> list[bytes]:
    """Return `body` in pieces of random lengths."""
    pieces, chance = [], random.Random(seed)
    while body:
        size = chance.choice((1, 2, 5, 40, len(body)))
        pieces.append(body[:size])
        body = body[size:]
    return pieces


CRUMBS = st.sampled_from(
    [b"data:", b"data: ", b"\n", b"\r", b"\r\n", b"\n\n", b"e30=", b"event: x", b"id:", b":", b" ", b"\xef\xbb\xbf"]
)


BODIES = st.one_of(st.binary(max_size=200), st.lists(st.one_of(CRUMBS, st.binary(max_size=8))).map(b"".join))


@settings(max_examples=300, deadline=None)
@given(BODIES, st.integers())
def test_any_bytes(body, seed):
    """Any bytes of a server become texts or a documented error, and the same ones wherever they are cut."""

    def outcome(pieces: list[bytes] | None) -> object:
        try:
            return texts_of(body, pieces=pieces)
        except DOCUMENTED as error:
            return str(error)

    assert outcome(cut(body, seed)) == outcome(None)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(max_size=80).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 60),
    st.sampled_from(["", ": ping{0}{0}", "id: 1{0}{0}", "event: x{0}", ": x{0}"]),
    st.integers(),
)
def test_any_texts(texts, end, width, between, seed):
    """Texts arrive as they were sent, whatever the form of their lines and wherever the stream is cut."""
    lines = []
    for text in texts:
        encoded = base64.b64encode(text).decode()
        lines.append(between.format(end))
        lines += [f"data: {encoded[at : at + width]}{end}" for at in range(0, len(encoded), width)]
        lines.append(end)
    body = "".join(lines).encode()
    assert texts_of(body, pieces=cut(body, seed)) == texts
