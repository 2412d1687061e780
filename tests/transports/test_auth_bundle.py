"""The addresses that a server names, and the error for connection parameters without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import EvalTransport, RTVIError, TransportStartError, WebSocketTransport, connect
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.transports.auth_bundle import missing_url
from tests.support.loopback import Front, serving, trusting
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

OPTIONS: dict[str, Any] = {"text_only": True, "connect_timeout": GUARD, "proxy": False}
SOURCE = "http://host/connect answered with"


@pytest.mark.parametrize(
    ("bundle", "source", "text"),
    [
        (None, "", "There is nothing to connect to: SomeTransport has no ws_url"),
        ({}, "", "connect() was given no parameters, but SomeTransport needs ws_url"),
        (None, SOURCE, f"{SOURCE} no parameters, but SomeTransport needs ws_url"),
        ([1], SOURCE, f"{SOURCE} a list, but"),
        ({"ws_url": ""}, SOURCE, f"{SOURCE} an empty ws_url, but"),
        ({"wsUrl": 3}, SOURCE, f"{SOURCE} a wsUrl of type int, but"),
        ({"room": 1, "token": "secret"}, SOURCE, f"{SOURCE} 'room', 'token', but"),
        ({"room_url": "secret"}, SOURCE, "This is for a room of Daily, which needs another transport. Let the server"),
        (
            {"iceConfig": "secret"},
            SOURCE,
            "This is for a WebRTC connection, which needs another transport. Use SmallWebRTC",
        ),
        ({"sessionId": "secret"}, SOURCE, "This is for a WebRTC connection, which needs another transport"),
        ({"sessionId": "secret"}, SOURCE, "(up to Pipecat 1.12: its runner with -t eval)"),
        ({"dailyRoom": "secret", "sessionId": "secret"}, SOURCE, "This is for a room of Daily"),
        ({"url": "secret", "token": "secret", "sessionId": "secret"}, SOURCE, "This is for a room of LiveKit"),
        ({"moq": {"host": "secret"}, "sessionId": "secret"}, SOURCE, "This is for a broadcast over MoQ"),
    ],
)
def test_what_was_given_is_described(bundle: Any, source: str, text: str) -> None:
    """The names of the parameters are shown, and their values never."""
    error = missing_url(bundle, source, "SomeTransport")
    assert text in error
    assert "secret" not in error


def test_many_and_long_names_are_cut() -> None:
    """A server may answer anything; the error stays short and printable."""
    error = missing_url({f"{number}\n" + "x" * 1000: 1 for number in range(20)}, SOURCE, "SomeTransport")
    assert "and 12 others" in error
    assert "\n" not in error
    assert len(error) < 800


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot behind the `Front` of a test."""
    with EmbeddedBot() as bot:
        yield bot


@pytest.mark.parametrize("transport", [WebSocketTransport, EvalTransport])
@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1", "wss://127.0.0.1:{port}/ws-client"),
        ("127.0.0.1", "wss://0.0.0.0:{port}/ws-client"),
        ("127.0.0.1", "wss://[::]:{port}/ws-client"),
        ("127.0.0.1", "ws://0.0.0.0:{port}/ws-client"),
        ("LOCALHOST", "wss://localhost:{port}/ws-client"),
        ("localhost", "wss://127.0.0.1:{port}/ws-client"),
    ],
)
def test_a_port_that_has_answered_without_tls(bot: EmbeddedBot, transport: Any, host: str, named: str) -> None:
    """Pipecat's runner names `wss` for each `--host` but localhost: its WebSocket is opened where it was asked."""
    with Front(bot.ws_url, f'{{"wsUrl": "{named}?a=1", "token": "t"}}') as front:
        with connect(f"http://{host}:{front.port}/start", transport=transport(), **OPTIONS) as client:
            assert client.connected
        (handshake,) = front.handshakes
    path = "/ws-client" if transport is WebSocketTransport else "/ws"
    assert handshake.startswith(f"GET {path}?a=1&token=t")
    assert f"\r\nHost: {host.lower()}:{front.port}\r\n" in handshake


@pytest.mark.parametrize(
    "named",
    ["wss://localhost:{port}/ws", "wss://127.0.0.2:{port}/ws", "wss://127.0.0.1:{other}/ws", "wss://0.0.0.0:{other}/"],
    ids=["a name", "an address", "a port", "a port of any address"],
)
def test_nothing_else_goes_on_without_tls(bot: EmbeddedBot, named: str) -> None:
    """At another host or port than the one that has answered, `wss` is TLS."""
    with Front(bot.ws_url, "{}") as other:
        answer = f'{{"ws_url": "{named.replace("{other}", str(other.port))}"}}'
        with Front(bot.ws_url, answer) as front:
            with pytest.raises(RTVIError, match=r"does not speak TLS|wss://127.0.0.2.* cannot be reached"):
                connect(f"http://127.0.0.1:{front.port}/start", transport="websocket", **OPTIONS)
            assert front.handshakes + other.handshakes == []


@pytest.mark.parametrize("transport", ["websocket", WebSocketTransport])
def test_a_url_of_the_application_s_own_is_taken_as_it_is(bot: EmbeddedBot, transport: Any) -> None:
    """`wss` that it gives itself is TLS, also at a port that has answered without."""
    with Front(bot.ws_url, '{"ws_url": "wss://127.0.0.1:{port}/"}') as front:
        own = f"wss://127.0.0.1:{front.port}/"
        url = own if transport == "websocket" else f"http://127.0.0.1:{front.port}/start"
        with pytest.raises(TransportStartError, match="does not speak TLS"):
            connect(url, transport=transport if transport == "websocket" else transport(own), **OPTIONS)
        assert front.heads[-1] == "TLS"


@pytest.mark.parametrize("named", ["127.0.0.1", "0.0.0.0"])
def test_tls_stays_where_it_is(bot: EmbeddedBot, named: str) -> None:
    """After a start request over https the WebSocket uses TLS as well, and checks the server's certificate."""
    with (
        Front(bot.ws_url, f'{{"wsUrl": "wss://{named}:{{port}}/ws"}}', tls=serving()) as front,
        connect(f"https://127.0.0.1:{front.port}", transport="websocket", ssl_context=trusting(), **OPTIONS) as client,
    ):
        assert client.connected
