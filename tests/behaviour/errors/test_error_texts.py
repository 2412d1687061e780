"""The error texts of the most common situations: they say why the call failed, and how to fix it.

Every text is the result of a real server on the loopback interface: HTTP, WebSocket, proxies, and servers that are
neither.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from rtvi_sync import (
    DisconnectedError,
    InvalidTransportParamsError,
    RequestRejectedError,
    RTVIClient,
    StartBotError,
    TransportStartError,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Peer, Proxy, Server, serving, trusting
from tests.support.slowness import GUARD

SECRET = "canary81c2"
RETRY = "Retry-After: 7"


class Rig:
    """Servers for one situation, and calls of a client. Ends with the test."""

    def __init__(self, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._stack = stack
        self.set_variable = monkeypatch.setenv
        #: Values of names in the expected texts, known only at run time.
        self.names: dict[str, str] = {}

    def serve(self, handler: Callable[[Peer], object], tls: ssl.SSLContext | None = None) -> str:
        """Start a server; its host and port."""
        server = self._stack.enter_context(Server(handler, tls=tls))
        self.names["<server>"] = server.authority
        return server.authority

    def endpoint(self, status: str, body: Any, *headers: str) -> str:
        """Start an HTTP server that always answers the same; its URL."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()

        def answer(peer: Peer) -> None:
            peer.read_request()
            peer.answer(status, content, *headers)

        return f"http://{self.serve(answer)}"

    def proxy(self, refuse: str) -> str:
        """Start a proxy that refuses; its URL."""
        proxy = self._stack.enter_context(Proxy(refuse=refuse))
        self.names["<proxy>"] = proxy.authority
        return f"http://ada:{SECRET}@{proxy.authority}"

    def raw_proxy(self, handler: Callable[[Peer], object]) -> str:
        """Start a server that poses as a proxy; return its URL."""
        server = self._stack.enter_context(Server(handler))
        self.names["<proxy>"] = server.authority
        return f"http://ada:{SECRET}@{server.authority}"

    def dead_proxy(self) -> str:
        """Return the URL of a proxy that is down."""
        port = self._stack.enter_context(closed_port())
        self.names["<proxy>"] = f"127.0.0.1:{port}"
        return f"http://ada:{SECRET}@127.0.0.1:{port}"

    def connect(self, url: str, **options: Any) -> None:
        """Connect by a connect endpoint, or to a WebSocket."""
        if url.startswith("http"):
            client_of(None, params={"base_url": url}, **options).connect()
        else:
            client_of(url, **options).connect()


def client_of(ws_url: str | None = None, **options: Any) -> RTVIClient:
    """Return a client without devices."""
    options = {
        "enable_mic": False,
        "speaker": NullSink(),
        "connect_timeout": GUARD,
        "proxy": False,
        "ssl_context": trusting(),
        **options,
    }
    return RTVIClient(transport=WebSocketTransport(ws_url), **options)


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Yield a port without a server, reserved for the block."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@attrs.frozen
class Situation:
    """A situation, and the error that it must raise.

    Attributes:
        name: Name of the test.
        run: Function that causes the error with a rig; the values of a loop are defaults of further parameters.
        error: Class of the error.
        parts: Parts of its text; names of the rig stand for values that are known only at run time.
        status: HTTP status of the error.
    """

    name: str
    run: Callable[..., object]
    error: type[Exception]
    parts: tuple[str, ...]
    status: int | None = None


# -- proxies ----------------------------------------------------------------------------------------------------------


def proxies() -> Iterator[Situation]:
    for scheme, error in (
        ("http", StartBotError),
        ("https", StartBotError),
        ("ws", TransportStartError),
        ("wss", TransportStartError),
    ):
        url = f"{scheme}://server.test/path"
        variable = "HTTPS_PROXY" if scheme in ("https", "wss") else "http_proxy"
        tunnels = scheme != "http"
        yield Situation(
            f"proxy down: {scheme}",
            lambda rig, url=url: rig.connect(url, proxy=rig.dead_proxy()),
            error,
            ("server.test/path", "the proxy <proxy> (proxy= option) cannot be used", "refused", "pass proxy=False"),
        )

        def by_variable(rig: Rig, proxy: str, url: str = url, variable: str = variable) -> None:
            rig.set_variable(variable, proxy)
            rig.connect(url, proxy=None)

        yield Situation(
            f"proxy down: {scheme}, by variable",
            lambda rig, connect=by_variable: connect(rig, rig.dead_proxy()),
            error,
            (f"the proxy <proxy> ({variable} in the environment)", "NO_PROXY", "proxy=False"),
        )
        yield Situation(
            f"proxy 407: {scheme}, by variable",
            lambda rig, connect=by_variable: connect(rig, rig.proxy("407 Proxy Authentication Required")),
            error,
            (
                f"the proxy <proxy> ({variable} in the environment) refused to",
                "with 407: Proxy Authentication Required",
                "Put user and password into its URL, http://user:password@<proxy>",
            ),
            407,
        )
        yield Situation(
            f"proxy 407: {scheme}",
            lambda rig, url=url: rig.connect(url, proxy=rig.proxy("407 Proxy Authentication Required")),
            error,
            (
                "the proxy <proxy> (proxy= option) refused to",
                "with 407: Proxy Authentication Required",
                "Put user and password into its URL, http://user:password@<proxy>",
            ),
            407,
        )
        yield Situation(
            f"proxy 502: {scheme}",
            lambda rig, url=url: rig.connect(url, proxy=rig.proxy("502 Bad Gateway")),
            error,
            ("502: Bad Gateway", "the proxy <proxy> (proxy= option)", "pass proxy=False")
            + (("refused to connect to server.test:",) if tunnels else ()),
            502,
        )
        yield Situation(
            f"proxy that is no proxy: {scheme}",
            lambda rig, url=url: rig.connect(url, proxy=rig.raw_proxy(ssh)),
            error,
            ("the proxy <proxy> (proxy= option) cannot be used", "speaks SSH, not HTTP"),
        )

    def socks(rig: Rig) -> None:
        rig.set_variable("ALL_PROXY", f"socks5://ada:{SECRET}@127.0.0.1:1")
        rig.connect("ws://server.test/", proxy=None)

    yield Situation(
        "proxy of another kind",
        socks,
        InvalidTransportParamsError,
        ("ALL_PROXY in the environment", "'socks5'", "only HTTP proxies"),
    )


# -- servers that are none --------------------------------------------------------------------------------------------


def ssh(peer: Peer) -> None:
    peer.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    peer.wait_for_end()


def smtp(peer: Peer) -> None:
    peer.send(b"220 mail.test ESMTP\r\n")
    peer.wait_for_end()


def echo(peer: Peer) -> None:
    peer.send(peer.sock.recv(65536))
    peer.wait_for_end()


def alert(peer: Peer) -> None:
    peer.read_head()
    peer.send(b"\x15\x03\x01\x00\x02\x02\x46")
    peer.wait_for_end()


def hang_up(peer: Peer) -> None:
    peer.read_request()  # all of it: bytes after the end would be answered by a reset


def plain(peer: Peer) -> None:
    peer.read_until(b"\0")
    peer.answer("400 Bad Request")


def others() -> Iterator[Situation]:
    for scheme, error in (("http", StartBotError), ("ws", TransportStartError)):
        for handler, text in (
            (ssh, "speaks SSH, not HTTP"),
            (smtp, "does not speak HTTP"),
            (echo, "does not speak HTTP"),
            (alert, "speaks TLS, not plain HTTP"),
            (hang_up, "closed without an answer"),
        ):
            yield Situation(
                f"{handler.__name__}: {scheme}",
                lambda rig, handler=handler, scheme=scheme: rig.connect(f"{scheme}://{rig.serve(handler)}/path"),
                error,
                (f"{scheme}://<server>/path", text, "Check the URL, its host and port", f"needs {scheme}s://"),
            )
        yield Situation(
            f"a server with TLS, spoken to without: {scheme}",
            lambda rig, scheme=scheme: rig.connect(f"{scheme}://{rig.serve(hang_up, serving())}/path"),
            error,
            (f"{scheme}://<server>/path", f"a server with TLS needs {scheme}s://"),
        )
        for handler in (plain, ssh, echo):
            yield Situation(
                f"{handler.__name__}, spoken to with TLS: {scheme}",
                lambda rig, handler=handler, scheme=scheme: rig.connect(f"{scheme}s://{rig.serve(handler)}/path"),
                error,
                (f"{scheme}s://<server>/path", "does not speak TLS", f"{scheme}://<server>/path"),
            )


# -- connect endpoints ------------------------------------------------------------------------------------------------


def bundles() -> Iterator[Situation]:
    where = "http://<server>/api/connect/ "
    needs = "but WebSocketTransport needs ws_url"
    for name, body, parts in (
        ("Daily", {"room_url": SECRET, "token": SECRET}, ("'room_url', 'token',", "of Daily", "another transport")),
        ("Daily, by Pipecat", {"dailyRoom": SECRET, "dailyToken": SECRET}, ("'dailyToken',", "a room of Daily")),
        ("WebRTC, by Pipecat", {"sessionId": SECRET, "iceConfig": {}}, ("'iceConfig',", "a WebRTC connection")),
        ("something else", {"url": SECRET}, ("answered with 'url',", "Set ws_url there")),
        ("nothing", {}, ("answered with no parameters,", "Set ws_url there")),
        ("a list", [SECRET], ("answered with a list,",)),
        ("a text", SECRET, ("answered with a str,",)),
        ("many keys", {f"key{n}": n for n in range(1000)}, ("'key7' and 992 others,",)),
        ("a ws_url that is a number", {"ws_url": 5}, ("answered with a ws_url of type int,",)),
        ("an empty ws_url", {"ws_url": "", "token": SECRET}, ("answered with an empty ws_url,",)),
    ):  # fmt: skip
        yield Situation(
            f"answer: {name}",
            lambda rig, body=body: rig.connect(rig.endpoint("200 OK", body) + "/api"),
            InvalidTransportParamsError,
            (where, *parts, needs),
        )
    yield Situation(
        "answer: another scheme",
        lambda rig: rig.connect(rig.endpoint("200 OK", {"ws_url": f"https://x/?token={SECRET}"}) + "/api"),
        InvalidTransportParamsError,
        (where, "answered with an unusable ws_url", "must start with ws:// or wss://", "'https://x/'"),
    )
    yield Situation(
        "answer: 204",
        lambda rig: rig.connect(rig.endpoint("204 No Content", b"") + "/api"),
        InvalidTransportParamsError,
        (where, "answered with no parameters", needs),
    )
    yield Situation(
        "answer: HTML",
        lambda rig: rig.connect(rig.endpoint("200 OK", b"<html>", f"Content-Type: text/html; {SECRET}") + "/api"),
        StartBotError,
        (where, "did not answer with JSON but with text/html", "Check that its URL is the endpoint"),
        200,
    )
    yield Situation(
        "answer to start_bot()",
        lambda rig: client_of().start_bot_and_connect(
            rig.endpoint("200 OK", {"dailyRoom": SECRET}) + f"/start?key={SECRET}"
        ),
        InvalidTransportParamsError,
        ("http://<server>/start answered with 'dailyRoom'", "a room of Daily"),
    )
    yield Situation(
        "connect() is given another key",
        lambda rig: client_of().connect({"room_url": SECRET}),
        InvalidTransportParamsError,
        ("connect() was given 'room_url'", needs),
    )
    yield Situation(
        "a handler returns nothing",
        lambda rig: client_of(custom_connect_handler=lambda *_: None).connect(),
        InvalidTransportParamsError,
        ("The custom connect handler returned no parameters", needs),
    )
    yield Situation(
        "nothing to connect to",
        lambda rig: client_of().connect(),
        InvalidTransportParamsError,
        ("There is nothing to connect to", "WebSocketTransport(ws_url=...)", "params.base_url"),
    )


# -- refusals ---------------------------------------------------------------------------------------------------------


def refusals_with_advice() -> Iterator[Situation]:
    nginx = (
        "Check the path of the URL (ws_url)",
        "its location in nginx",
        "proxy_http_version 1.1",
        "Upgrade and Connection",
    )
    basic, bearer = 'WWW-Authenticate: Basic realm="bots"', "WWW-Authenticate: Bearer"
    tls_only = b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
    go_tls_only = b"Client sent an HTTP request to an HTTPS server.\n"
    apache_tls_only = b"Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />"
    for scheme, path in (("ws", "/ws"), ("http", "")):
        login = ("user and a password", f"{scheme}://USER:PASSWORD@HOST", "headers={'Authorization': 'Basic ...'}")
        tls = (f"The port speaks TLS: use {scheme}s://",)
        for name, status, body, header, parts in (
            ("nginx that passes no WebSocket on", 404, b"", "Server: nginx/1.22.1", nginx),
            ("a server that requires a login", 401, b"", basic, login),
            ("nginx with TLS", 400, tls_only, "Server: nginx/1.22.1", tls),
            ("a server of Go with TLS", 400, go_tls_only, "X: y", tls),
            ("Apache with TLS", 400, apache_tls_only, "X: y", tls),
            ("a server that refuses a login", 401, b"", basic, ("does not accept the user and password", "check them")),
            ("a server that requires a token", 401, b"", bearer, ("token",) if scheme == "ws" else ("params.headers",)),
        ):
            if scheme == "ws" or parts is not nginx:
                login_sent = "ada:pw@" if "refuses" in name else ""
                yield Situation(
                    f"{name}, asked by {scheme}",
                    lambda rig, to=f"{scheme}://{login_sent}", path=path, status=status, body=body, header=header: (
                        rig.connect(rig.endpoint(f"{status} No", body, header).replace("http://", to) + path)
                    ),
                    TransportStartError if scheme == "ws" else StartBotError,
                    (f"{status}: No", *parts),
                    status,
                )
    for status, then in (
        (403, "Otherwise the token may be missing, wrong, expired, or used before"),
        (404, "at /ws or at /ws-client"),
    ):
        yield Situation(
            f"a WebSocket without a path, {status}",
            lambda rig, status=status: rig.connect(rig.endpoint(f"{status} No", {}).replace("http", "ws")),
            TransportStartError,
            (": No. The URL has no path", "such as ws://<server>/ws", then),
            status,
        )


def refusals() -> Iterator[Situation]:
    busy, broke = {"detail": "all bots are busy"}, "it broke"
    for status, parts in (
        (401, ("token may be missing or wrong",)),
        (403, ("token may be missing, wrong, expired, or used before",)),
        (404, ("Check the path of the URL (ws_url)",)),
        (405, ("Check the path of the URL (ws_url)",)),
        (426, ("Check the path of the URL (ws_url)",)),
        (429, ("Try again in 7 s",)),
        (500, ("See the server's log",)),
        (503, ("Try again in 7 s", "See the server's log")),
    ):
        yield Situation(
            f"WebSocket refused with {status}",
            lambda rig, status=status: rig.connect(
                rig.endpoint(f"{status} No", busy, RETRY).replace("http", "ws") + f"/path?token={SECRET}"
            ),
            TransportStartError,
            (f"ws://<server>/path refused the WebSocket handshake with {status}: all bots are busy", *parts),
            status,
        )
    for status, part in ((200, "Check the path of the URL (ws_url)"), (302, "Redirects are not followed")):
        yield Situation(
            f"WebSocket answered with {status}",
            lambda rig, status=status: rig.connect(
                rig.endpoint(f"{status} Yes", b"<html>").replace("http", "ws") + "/p"
            ),
            TransportStartError,
            (f"ws://<server>/p answered the WebSocket handshake with {status}: Yes", part),
            status,
        )
    yield Situation(
        "a reason in a later segment",
        lambda rig: rig.connect(f"ws://{rig.serve(late_reason)}/path"),
        TransportStartError,
        ("with 503: all bots are busy. Try again later. ",),
        503,
    )
    for name, lines in (
        ("a wrong accept key", ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: wrong")),
        ("no upgrade", ("Server: x",)),
    ):
        yield Situation(
            name,
            lambda rig, lines=lines: rig.connect(f"ws://{rig.serve(switching(*lines))}/path?token={SECRET}"),
            TransportStartError,
            (
                "ws://<server>/path failed",
                "without a valid",
                "Sec-WebSocket-Accept",
                "Check the path of the URL (ws_url)",
            ),
        )
    field = {"type": "missing", "loc": ["body", "user"], "msg": "Field required", "input": SECRET}
    for body, text in (
        ({"info": broke, "detail": "x", "error": "y"}, broke),
        ({"detail": broke, "error": "y"}, broke),
        ({"error": broke, "message": "y"}, broke),
        ({"message": broke}, broke),
        ({"error": True, "message": broke}, broke),
        ({"error": {"message": broke, "code": 3}}, broke),
        ({"detail": {"error": broke}}, broke),
        ({"detail": [field]}, "body.user: Field required"),
        ({"error": 5}, "Oops"),
        (b"<html>it broke</html>", "Oops"),
    ):
        yield Situation(
            f"HTTP 500: {body!r}",
            lambda rig, body=body: rig.connect(rig.endpoint("500 Oops", body)),
            StartBotError,
            (f"http://<server>/connect/ answered 500: {text}. See the server's log",),
            500,
        )
    for status, headers, part in (
        (503, (RETRY,), ". Try again in 7 s. See the server's log"),
        (429, ("Retry-After: Wed, 21 Oct 2026 07:28:00 GMT",), ". Try again after Wed, 21 Oct 2026 07:28:00 GMT"),
        (429, (f"Retry-After: {SECRET}",), ". Try again later"),
        (401, (), ". Set params.headers to the headers that the server requires"),
        (404, (), ". Check the URL of the connect endpoint"),
    ):
        yield Situation(
            f"HTTP {status} {headers}",
            lambda rig, status=status, headers=headers: rig.connect(rig.endpoint(f"{status} Oops", {}, *headers)),
            StartBotError,
            (f"answered {status}: Oops{part}",),
            status,
        )
    yield Situation(
        "start_bot() 404",
        lambda rig: client_of().start_bot(rig.endpoint("404 Not Found", {})),
        StartBotError,
        ("answered 404: Not Found. Check the URL of the start endpoint",),
        404,
    )
    yield Situation(
        "an action 500",
        lambda rig: act(rig.endpoint("500 Oops", {"error": broke})),
        RequestRejectedError,
        ("http://<server>/action/ answered 500: it broke. See the server's log",),
        500,
    )
    yield Situation(
        "an action to SSH",
        lambda rig: act(f"http://{rig.serve(ssh)}"),
        DisconnectedError,
        ("http://<server>/action/", "speaks SSH"),
    )


def late_reason(peer: Peer) -> None:
    peer.read_head()
    body = json.dumps({"detail": "all bots are busy"}).encode()
    peer.send(f"HTTP/1.1 503 Busy\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    peer.send(body[:5])
    peer.send(body[5:])
    peer.wait_for_end()


def switching(*lines: str) -> Callable[[Peer], None]:
    def answer(peer: Peer) -> None:
        peer.read_head()
        peer.send("\r\n".join(["HTTP/1.1 101 Switching Protocols", *lines, "", ""]).encode())
        peer.wait_for_end()

    return answer


def act(url: str, value: Any = 1) -> None:
    arguments = [{"name": "n", "value": value}]
    client = client_of(params={"base_url": url})
    client.action({"service": "llm", "action": "run", "arguments": arguments}, timeout=GUARD)


# -- files in place of devices ----------------------------------------------------------------------------------------


def files() -> Iterator[Situation]:
    for kind, file, expected in (
        ("speaker", "out.wav", "Pass speaker=Path('out.wav') or speaker=WavSink('out.wav')"),
        ("speaker", "recordings/OUT.WAV", "speaker=WavSink('recordings/OUT.WAV')"),
        ("speaker", "./answers/first", "Pass speaker=Path('./answers/first')"),
        ("mic", "hello.wav", "Pass mic=Path('hello.wav') or mic=WavSource('hello.wav')"),
        ("mic", "/tmp/hello.mp3", "Pass mic=Path('/tmp/hello.mp3')"),
        ("cam", "film.mp4", "Pass cam=FileVideoSource('film.mp4')"),
    ):
        part = f"{kind}='{file}' is the name of a file"
        options = {kind: file}
        yield Situation(
            f"{kind}={file}",
            lambda rig, options=options: client_of("ws://server.test/", **options),
            ValueError,
            (part, expected),
        )
        yield Situation(
            f"update_{kind}({file})",
            lambda rig, kind=kind, file=file: getattr(client_of("ws://server.test/"), f"update_{kind}")(file),
            ValueError,
            (part, expected),
        )


# -- values that JSON lacks -------------------------------------------------------------------------------------------


def in_a_session(value: Any) -> None:
    with EmbeddedBot() as bot, client_of(bot.ws_url) as client:
        client.send_client_message("x", value)


PLACES: tuple[tuple[str, Callable[[Rig, Any], object]], ...] = (
    (
        "params.request_data['user']",
        lambda rig, value: client_of(
            params={"base_url": "http://server.test", "request_data": {"user": value}}
        ).connect(),
    ),
    (
        "request_data['user']",
        lambda rig, value: client_of().start_bot("http://server.test/start", request_data={"user": value}),
    ),
    (
        "request_data['user']",  # of a mapping that is no dict
        lambda rig, value: client_of().start_bot(
            "http://server.test/start", request_data=MappingProxyType({"user": value})
        ),
    ),
    (
        "params.config[0]['options'][0]['value']",
        lambda rig, value: client_of(
            params={
                "base_url": "http://server.test",
                "config": [{"service": "llm", "options": [{"name": "n", "value": value}]}],
            }
        ).connect(),
    ),
    ("action['arguments'][0]['value']", lambda rig, value: act("http://server.test", value)),
    ("data['d']", lambda rig, value: in_a_session(value)),
)


def unserializable() -> Iterator[Situation]:
    circle: dict[str, Any] = {}
    circle["again"] = [circle]
    for place, send in PLACES:
        for name, value, error, at, text in (
            ("a datetime", datetime.datetime.now(), TypeError, "['when'][1]", "is a datetime, which JSON does not"),
            ("a set", {SECRET}, TypeError, "['when'][1]", "is a set, which"),
            ("bytes", SECRET.encode(), TypeError, "['when'][1]", "is a bytes, which"),
            ("a Decimal", Decimal(1), TypeError, "['when'][1]", "is a Decimal, which"),
            ("an object", object(), TypeError, "['when'][1]", "is an object, which"),
            ("NaN", math.nan, ValueError, "['when'][1]", "is nan, a number that JSON does not have"),
            ("a key", {(1, 2): SECRET}, TypeError, "['when'][1]", "has a key that is a tuple"),
            ("half a character", SECRET + "\ud800", ValueError, "['when'][1]", "has half a character"),
            ("half a key", {SECRET + "\ud800": 1}, ValueError, "['when'][1]", "has a key that has half a character"),
            ("a circle", circle, ValueError, "['when'][1]['again'][0]", "refers back to"),
            ("a large number", 10**5000, ValueError, "['when'][1]", "is an int too large"),
        ):  # fmt: skip
            yield Situation(
                f"{name} in {place}",
                lambda rig, send=send, value=value: send(rig, {"ok": [1.5, None], "when": ("x", value)}),
                error,
                (place + at + " " + text,),
            )


SITUATIONS = [*proxies(), *others(), *bundles(), *refusals(), *refusals_with_advice(), *files(), *unserializable()]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_what_users_are_told(situation: Situation, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the right class and status, gives the cause and advice, and is one short line."""
    for variable in list(os.environ):
        if variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)
    with contextlib.ExitStack() as stack:
        rig = Rig(stack, monkeypatch)
        with pytest.raises(situation.error) as caught:
            situation.run(rig)
    text = str(caught.value)
    for part in situation.parts:
        for placeholder, known in rig.names.items():
            part = part.replace(placeholder, known)
        assert part in text
    assert type(caught.value) is situation.error
    assert getattr(caught.value, "status", None) == situation.status
    assert text.isprintable()
    assert len(text) < 700
    assert SECRET not in text
    assert "?" not in text


def test_deep_data() -> None:
    """Data with more levels than Python's encoder takes is a `ValueError` that says where, and its path is short."""
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    try:
        for place, send in PLACES[:2]:
            with pytest.raises(ValueError, match="is nested too deeply for JSON") as caught:
                send(None, {"tree": deep})  # type: ignore[arg-type]
            assert str(caught.value).startswith(f"{place}['tree'][0]")
            assert len(str(caught.value)) < 200
    finally:
        while isinstance(deep, list):  # its own destruction must not recurse either
            deep = deep.pop()


def test_ids_that_look_like_paths() -> None:
    """The ids of devices may have slashes and dots: only the suffix of a file is refused."""
    for device_id in ("/dev/video0", "hw:0,0", "alsa_output.pci-0000_00_1f.3.analog-stereo", "out"):
        client_of("ws://server.test/", mic=device_id, speaker=device_id, cam=device_id)
