"""`connect(url)`: a connected client by one call, whatever transport the bot behind the URL has."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from rtvi_sync import (
    ConnectError,
    EvalTransport,
    MemoryTransport,
    ReconnectPolicy,
    RTVIClient,
    RTVIError,
    SmallWebRTCTransport,
    StartBotError,
    TransportState,
    WebSocketTransport,
    connect,
)
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.http_server import Answer, ScriptedServer
from tests.support.loopback import Peer, Server
from tests.support.moments import at
from tests.support.slowness import GUARD
from tests.support.threads import thread_names
from tests.support.websocket import accept, close_frame

QUIET: dict[str, Any] = {"enable_mic": False, "speaker": NullSink(), "connect_timeout": GUARD}


@pytest.mark.parametrize(
    "form", [lambda bot: bot.ws_url, lambda bot: bot.base_url, lambda bot: f"{bot.base_url}/start"]
)
def test_the_client_is_connected(form: Callable[[EmbeddedBot], str]) -> None:
    """connect() returns a ready client for the URL of a WebSocket, of a server or of a start endpoint."""
    with EmbeddedBot(replies="Noon.") as bot, connect(form(bot), **QUIET) as client:
        assert client.state is TransportState.READY
        assert isinstance(client.transport, WebSocketTransport)
        with client.events("bot-transcription", timeout=GUARD) as answers:
            client.send_text("What time is it?")
            assert next(answers).data.text == "Noon."


@pytest.mark.parametrize(
    ("options", "limited"),
    [
        ({}, True),
        ({"reconnect": ReconnectPolicy()}, True),
        ({"connect_timeout": None}, False),
        ({"timeout": None}, False),
        ({"reconnect": ReconnectPolicy.forever()}, False),
    ],
)
def test_the_limit_is_30_seconds(options: dict[str, Any], limited: bool) -> None:
    """A bot without RTVI is not waited for without end, unless the application says so."""

    class Far(MemoryTransport):
        """A transport that keeps the time that it has to connect."""

        def connect(self, auth_bundle: Any, abort: Any) -> None:
            self.remaining = abort.remaining()
            super().connect(auth_bundle, abort)

    with connect("ws://bot.example", transport=Far(), **options) as client:
        assert isinstance(client.transport, Far)
        remaining = client.transport.remaining
    if limited:
        assert remaining is not None
        assert 0 < remaining <= 30
    else:
        assert remaining is None or remaining > 30


def test_later_errors_name_what_connect_has_raised(server: ScriptedServer) -> None:
    """Errors after a failed connect() name all transports, not the last one that was tried."""
    server.answers["/ws"] = Answer({"detail": "The bot is busy"}, 503)
    client = RTVIClient.for_url(server.url.replace("http:", "ws:") + "/ws-client", **QUIET)
    server.answers["/ws-client"] = Answer({"detail": "Another client has it"}, 503)
    with pytest.raises(ConnectError, match=r"(?s)Another client has it.*The bot is busy") as refused:
        client.connect()
    text = str(refused.value)
    calls: list[Callable[[], Any]] = [
        lambda: client.ask("Hello"),
        lambda: client.send_text("Hello"),
        lambda: client.send_client_request("ping"),
        client.listen,
        client.wait_until_ready,
        client.disconnect_bot,
    ]
    for call in calls:
        with pytest.raises(RTVIError, match=re.escape(text)) as later:
            call()
        assert isinstance(later.value.__cause__, ConnectError)
    assert str(client.wait().error) == text
    client.close()


def test_leaving_it_disconnects() -> None:
    """Leaving the `with` block disconnects the client and leaves no thread."""
    with connect("ws://bot.example", transport=MemoryTransport()) as client:
        pass
    assert client.state is TransportState.DISCONNECTED
    assert thread_names() == []


def test_a_bot_that_has_the_eval_route_only(server: ScriptedServer) -> None:
    """A server whose start endpoint refuses plain WebSockets: `/ws` beside it is tried."""
    with EmbeddedBot() as bot:
        refusal = Answer({"detail": "Transport 'websocket' is not allowed."}, 400)
        bundle = Answer({"wsUrl": bot.ws_url, "token": "abc"})
        server.answers["/start"] = lambda request: bundle if request.body["transport"] == "twilio" else refusal
        server.answers["/status"] = Answer({"status": "ready", "transports": ["daily", "twilio"]})
        with connect(server.url, **QUIET) as client:
            assert isinstance(client.transport, EvalTransport)
            assert "?token=abc&" in bot.wait_for_session(GUARD).path


def test_without_the_extra_of_webrtc(server: ScriptedServer) -> None:
    """If the bot may have only WebRTC, the error lists the ways that were tried, and the extra to install."""
    server.answers["/start"] = Answer({"detail": "Transport 'websocket' is not allowed."}, 400)
    error = pytest.raises(ConnectError, match=r":\n  webrtc: .* install .*\[webrtc\].*\.\n")
    with at("WebRTC is looked for", lambda *_: False), error as caught:
        connect(server.url, **QUIET)
    assert [name for name, _ in caught.value.attempts] == ["websocket", "eval"]


def test_the_extra_of_webrtc_for_a_server_that_has_no_endpoint(server: ScriptedServer) -> None:
    """What is to be installed comes last: the URL is probably wrong."""
    nothing = Answer({"detail": "Not Found"}, 404)
    server.answers.update(dict.fromkeys(("/start", "/connect", "/status"), nothing))
    with at("WebRTC is looked for", lambda *_: False), pytest.raises(ConnectError) as caught:
        connect(server.url, **QUIET)
    assert [line.split()[0] for line in str(caught.value).splitlines()[1:-1]] == ["eval:", "websocket:", "webrtc:"]


def test_the_error_has_a_short_line_for_each_way(server: ScriptedServer) -> None:
    """The error of several ways has one line for each, with the start of its advice; `attempts` has them whole."""
    missing = Answer({"detail": "x" * 400}, 404)
    server.answers.update(dict.fromkeys(("/start", "/connect", "/status", "/api/offer"), missing))
    with pytest.raises(ConnectError) as caught:
        connect(server.url, **QUIET)
    first, *ways, last = str(caught.value).split("\n")
    assert first == "No bot was reached, by any transport:"
    assert {way.split()[0] for way in ways} == {f"{name}:" for name, _ in caught.value.attempts}
    assert all(way.isprintable() and len(way) < 600 for way in ways)
    assert last == "  (error.attempts has each try in full)"


@pytest.mark.parametrize(("path", "may_be"), [("/ws", True), ("/ws-client", False)])
def test_what_may_be_a_phone_bot(path: str, may_be: bool) -> None:
    """A bot at /ws that no transport has reached may be one that takes calls alone, as the error says."""

    def hang_up(peer: Peer) -> None:
        head, _ = peer.read_request()
        accept(peer, head, after=close_frame(1011))

    with Server(hang_up) as server, pytest.raises(ConnectError) as caught:
        connect(f"ws://{server.authority}{path}", **QUIET)
    hint = "  If this is a phone bot, name the transport: twilio, telnyx, plivo or exotel"
    assert (hint in str(caught.value).split("\n")) is may_be


def test_the_likeliest_cause_is_the_first(server: ScriptedServer) -> None:
    """The way that got furthest is listed before those for which the server starts no bot."""
    server.answers["/start"] = Answer({"detail": "Transport 'websocket' is not allowed."}, 400)
    with pytest.raises(ConnectError, match=r":\n  eval: .* refused the WebSocket handshake .*\n  websocket: .* 400"):
        connect(server.url, **QUIET)


@pytest.mark.parametrize("path", ["/client", "/client/", "/client/index.html", "/client/?autoconnect=1#/"])
@pytest.mark.parametrize("status", [404, 405])
def test_the_page_of_a_runner(server: ScriptedServer, path: str, status: int) -> None:
    """A URL that was copied from a browser is told as such, with the one to pass, whatever the transport."""
    server.answers[path.partition("?")[0]] = Answer({"detail": "Method Not Allowed"}, status)
    with pytest.raises(ConnectError, match="is a page for browsers") as caught:
        connect(f"{server.url}{path}", **QUIET)
    assert str(caught.value).endswith(f"Pass the URL of the server, {server.url}")


@pytest.mark.parametrize("path", ["/ws", "/ws-client", "/connect", "/foo/bar"])
@pytest.mark.parametrize("kind", ["404", "405", "426", "a server for WebSockets only"])
def test_a_url_that_takes_no_start_request(server: ScriptedServer, path: str, kind: str) -> None:
    """The error of a wrong path, or of `http` in place of `ws`, has the URLs that may be right, and no other route."""
    with EmbeddedBot() as bot:
        url = server.url if kind.isdigit() else bot.ws_url.replace("ws:", "http:").removesuffix("/ws")
        if kind.isdigit():
            server.answers[path] = Answer({"detail": "No"}, int(kind))
        with pytest.raises(ConnectError) as caught:
            connect(f"{url}{path}", **QUIET)
    text = str(caught.value)
    assert text.endswith(f", {url}")
    assert (f"Pass {url.replace('http', 'ws')}{path}, " in text) is (path.startswith("/ws") or kind == "426")
    assert "/offer" not in text


def test_a_connect_endpoint_with_the_path_of_that_page(server: ScriptedServer) -> None:
    """An endpoint of one's own may be called so."""
    with EmbeddedBot() as bot:
        server.answers["/client"] = Answer({"ws_url": bot.ws_url})
        with connect(f"{server.url}/client", **QUIET) as client:
            assert client.connected


@pytest.mark.parametrize(("make", "call"), [(connect, "connect()"), (RTVIClient.for_url, "for_url()")])
def test_a_misspelt_option(make: Callable[..., object], call: str) -> None:
    """The error has the nearest option, in the spelling of the caller, and all that the call takes."""
    for name, near in (("conect_timeout", "connect_timeout"), ("connectTimout", "connectTimeout"), ("tokn", "token")):
        with pytest.raises(TypeError) as caught:
            make("ws://bot.example", **{name: 3})
        text = str(caught.value)
        assert text.startswith(f"{call} has no {name}; did you mean {near}? It has url, transport, token, headers, ")
        assert "custom_connect_handler" not in text
    with pytest.raises(TypeError, match=r" has no nonsense; it has url, .*reconnect$"):
        make("ws://bot.example", nonsense=3)


@pytest.mark.parametrize("method", ["ask", "send_text", "update_mic", "on"])
def test_a_misspelt_argument_of_a_method(method: str) -> None:
    """The error names the class that the application knows."""
    with pytest.raises(TypeError, match=rf"^RTVIClient\.{method}\(\) got an unexpected keyword argument 'timout'"):
        getattr(RTVIClient(), method)("Hello", timout=3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"conect_timeout": 3}, "RTVIClientOptions has no conect_timeout; did you mean connect_timeout?"),
        ({"connectTimout": 3}, "RTVIClientOptions has no connectTimout; did you mean connectTimeout?"),
        ({"params": {"baseUlr": "http://x"}}, "RTVIClientParams has no baseUlr; did you mean baseUrl?"),
        ({"params": {"endpoints": {"conect": "x"}}}, "Endpoints has no conect; did you mean connect?"),
        ({"x\ny": 3}, "RTVIClientOptions has no 'x y'; it has transport, "),
    ],
)
def test_a_misspelt_key(options: dict[str, Any], text: str) -> None:
    """A key of a mapping is named as a keyword is."""
    with pytest.raises(TypeError) as caught:
        RTVIClient(options)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    "turn_on",
    [
        lambda url: RTVIClient.for_url(url, enable_cam=True, **QUIET),
        lambda url: RTVIClient.for_url(url, enable_camera=True, **QUIET),
        lambda url: turned_on(RTVIClient.for_url(url, **QUIET), "enable_cam"),
        lambda url: turned_on(RTVIClient.for_url(url, **QUIET), "enable_screen_share"),
    ],
)
def test_video_that_is_wanted_from_the_start(server: ScriptedServer, turn_on: Callable[[str], RTVIClient]) -> None:
    """The transport that carries it is tried first, so that a bot with several is seen and sees."""
    server.answers["/start"] = lambda request: Answer({"detail": request.body["transport"]}, 400)
    with closing(turn_on(server.url)) as client:
        assert isinstance(client.transport, SmallWebRTCTransport)
        with pytest.raises(ConnectError) as caught:
            client.connect()
    assert [name for name, _ in caught.value.attempts] == ["webrtc", "websocket", "eval"]


def turned_on(client: RTVIClient, switch: str) -> RTVIClient:
    getattr(client, switch)(True)
    return client


def test_a_bot_without_video(caplog: pytest.LogCaptureFixture) -> None:
    """A bot without video is reached, with a warning."""
    with EmbeddedBot() as bot, connect(bot.base_url, enable_cam=True, cam=NoPictures(), **QUIET) as client:
        assert isinstance(client.transport, WebSocketTransport)
    assert caplog.text.count("the transport that has reached the bot has no video") == 1


class NoPictures:
    def read(self) -> None: ...

    def close(self) -> None: ...


def test_a_server_for_websockets_only() -> None:
    """A server that hangs up on a start request and asks a GET to upgrade is itself the WebSocket."""
    with EmbeddedBot() as bot:
        url = bot.ws_url.replace("ws:", "http:").removesuffix("/ws")
        with connect(url, **QUIET) as client:
            assert isinstance(client.transport, WebSocketTransport)
            assert bot.wait_for_session(GUARD).path == "/"


@pytest.mark.parametrize("answer", [None, "404 Not Found"])
def test_another_server_that_hangs_up(answer: str | None) -> None:
    """The error is the start request's."""

    def serve(peer: Peer) -> None:
        head, _ = peer.read_request()
        if answer is not None and head.startswith("GET"):
            peer.answer(answer)

    with Server(serve) as server, pytest.raises(StartBotError, match=r"/start failed: .*Check the URL") as caught:
        connect(f"http://{server.authority}", **QUIET)
    assert caught.value.status is None


def test_it_fails() -> None:
    """Nothing of the client is left, and the error has every way that was tried."""
    with pytest.raises(ConnectError) as caught:
        connect("ws://127.0.0.1:9/ws", **QUIET)
    assert [name for name, _ in caught.value.attempts] == ["websocket", "eval"]
    assert thread_names() == []
