"""Which transports may reach the bot at a URL, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import (
    EvalTransport,
    InvalidTransportParamsError,
    MemoryTransport,
    MissingExtraError,
    RTVIClient,
    RTVIClientParams,
    RTVIError,
)
from rtvi_sync.client.candidates import candidates_for, params_for, video_first
from tests.support.http_server import ScriptedServer

pytestmark = pytest.mark.inside

WS = "ws://bot.example/ws"
SERVER = "http://bot.example:7860"
OFFER = "https://bot.example/api/offer"


def test_by_name() -> None:
    """candidates_for() returns the transports that fit the URL, or the one that is asked for by name."""
    assert [way.transport.name for way in candidates_for(WS)] == ["websocket", "eval"]
    assert [way.transport.name for way in candidates_for(WS, "eval")] == ["eval"]
    assert [way.transport.name for way in candidates_for(WS, "websocket")] == ["websocket"]
    assert [way.transport.name for way in candidates_for(OFFER)] == ["webrtc"]
    assert [way.transport.name for way in candidates_for(SERVER)] == ["websocket", "webrtc", "eval"]


def test_the_order_for_video() -> None:
    """Transports that carry video are first; the rest keep their order."""
    assert [way.transport.name for way in video_first(candidates_for(SERVER))] == ["webrtc", "websocket", "eval"]


def test_without_the_extra_of_webrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its extra, WebRTC is left out; if the bot needs it, the error names the extra to install."""
    monkeypatch.setattr("rtvi_sync.transports.small_webrtc.is_installed", lambda: False)
    for bot in (SERVER, WS):
        assert [way.transport.name for way in candidates_for(bot)] == ["websocket", "eval"]
    wanted: list[tuple[str, Any]] = [(SERVER, "webrtc"), (OFFER, "auto")]
    for url, name in wanted:
        with pytest.raises(MissingExtraError, match=r"\[webrtc\]"):
            candidates_for(url, name)


def test_a_url_that_the_transport_does_not_use() -> None:
    """The URL of a WebSocket is no offer's, and the reverse."""
    wrong: list[tuple[str, Any, str]] = [(WS, "webrtc", "a WebSocket"), (OFFER, "eval", "a WebRTC offer")]
    for url, name, kind in wrong:
        with pytest.raises(InvalidTransportParamsError, match=f"for {kind}, which the transport '{name}'"):
            candidates_for(url, name)


def test_a_silent_offer_costs_less_than_a_third() -> None:
    """Pipecat's runner takes the offer for any bot, so this way has a shorter limit while others remain."""
    assert [way.patience for way in candidates_for(SERVER)] == [None, 5.0, None]


@pytest.mark.parametrize(
    ("url", "offer"),
    [
        (SERVER, "http://bot.example:7860/api/offer"),
        ("https://bot.example/app/start?key=1", "https://bot.example/app/api/offer"),
        (OFFER, OFFER),
        ("http://bot.example/ws", None),
        ("http://bot.example/connect", None),
    ],
)
def test_the_offer_beside_a_start_endpoint(url: str, offer: str | None) -> None:
    """A server without the start endpoint may still take offers."""
    (way,) = candidates_for(url, "webrtc")
    assert way.bot_url is not None
    assert way.bot_url.offer_url == offer


def test_headers_of_an_offer(server: ScriptedServer) -> None:
    """Without a start request, the headers of `for_url()` go with the offer."""
    client = RTVIClient.for_url(f"{server.url}/api/offer", headers={"X-Key": "abc"}, text_only=True)
    with pytest.raises(RTVIError):
        client.connect()
    assert server.requests[0].path == "/api/offer"
    assert server.requests[0].headers["x-key"] == "abc"


def test_a_transport_of_the_application() -> None:
    """A transport of the application is the only way; token and headers are refused if it would ignore them."""
    transport = MemoryTransport()
    (way,) = candidates_for(WS, transport)
    assert way.transport is transport
    with pytest.raises(TypeError, match="token"):
        candidates_for(WS, transport, "abc")
    with pytest.raises(TypeError, match="headers"):
        candidates_for(WS, transport, headers={"X-Key": "abc"})
    assert candidates_for("http://bot.example/start", transport, headers={"X-Key": "abc"})


def test_headers_go_to_the_server_of_the_url() -> None:
    """Headers go only to the server of the URL: a `base_url` of another origin is refused."""
    headers = {"X-Key": "abc"}
    ways = candidates_for("http://bot.example/start", headers=headers)
    assert params_for(ways, RTVIClientParams(headers={"X-Other": "1"}), headers).headers == {"X-Other": "1", **headers}
    other = RTVIClientParams(base_url="http://other.example")
    with pytest.raises(ValueError, match="base_url"):
        params_for(ways, other, headers)
    assert params_for(ways, other, None) is other


def test_services_that_are_not_reached() -> None:
    """If Pipecat's runner uses a transport of another service, the error says how to proceed."""
    for name in ("daily", "livekit", "moq"):
        with pytest.raises(ValueError, match=rf"transport '{name}' is not supported.*'websocket', 'webrtc' or 'eval'"):
            candidates_for("http://127.0.0.1:9", name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smoke", ""),
        ("websockets", "; did you mean 'websocket'?"),
        ("WebSocketTransport", "; did you mean 'websocket'?"),
        ("web-rtc", "; did you mean 'webrtc'?"),
        ("evals", "; did you mean 'eval'?"),
        (5, ""),
    ],
)
def test_another_name(name: Any, hint: str) -> None:
    """The error has all names, and the nearest one."""
    with pytest.raises(ValueError, match="'auto', 'websocket', 'webrtc', 'eval'") as caught:
        candidates_for(WS, name)
    assert str(caught.value).endswith(f"not {name!r}{hint}")


@pytest.mark.parametrize(
    ("url", "route"),
    [
        ("http://bot.example:7860", "ws://bot.example:7860/ws"),
        ("https://bot.example/api/start?key=1", "wss://bot.example/api/ws"),
        ("http://bot.example/connect", None),
        (WS, WS),
    ],
)
def test_the_eval_route_beside_a_start_endpoint(url: str, route: str | None) -> None:
    """The eval route lies beside a start endpoint, as in Pipecat's runner; a connect endpoint has no known route."""
    websocket, *_, eval_way = candidates_for(url)
    assert websocket.bot_url is not None
    assert eval_way.bot_url is not None
    assert eval_way.bot_url.ws_url == route
    assert eval_way.bot_url.endpoints == websocket.bot_url.endpoints
    (own_way,) = candidates_for(url, EvalTransport(skip_tts=True))
    assert own_way.bot_url == eval_way.bot_url
