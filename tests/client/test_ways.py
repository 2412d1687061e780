"""Which transports may reach the bot at a URL, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import EvalTransport, MemoryTransport, RTVIClientParams
from rtvi_sync.client.ways import params_for, ways_to

WS = "ws://bot.example/ws"


def test_by_name() -> None:
    assert [way.transport.name for way in ways_to(WS)] == ["websocket", "eval"]
    assert [way.transport.name for way in ways_to(WS, "eval")] == ["eval"]
    assert [way.transport.name for way in ways_to(WS, "websocket")] == ["websocket"]


def test_a_transport_of_the_application() -> None:
    transport = MemoryTransport()
    (way,) = ways_to(WS, transport)
    assert way.transport is transport
    with pytest.raises(TypeError, match="token"):
        ways_to(WS, transport, "abc")
    with pytest.raises(TypeError, match="headers"):
        ways_to(WS, transport, headers={"X-Key": "abc"})
    assert ways_to("http://bot.example/start", transport, headers={"X-Key": "abc"})


def test_headers_go_to_the_server_of_the_url() -> None:
    """They may hold a key, which no other server may get."""
    headers = {"X-Key": "abc"}
    ways = ways_to("http://bot.example/start", headers=headers)
    assert params_for(ways, RTVIClientParams(headers={"X-Other": "1"}), headers).headers == {"X-Other": "1", **headers}
    other = RTVIClientParams(base_url="http://other.example")
    with pytest.raises(ValueError, match="base_url"):
        params_for(ways, other, headers)
    assert params_for(ways, other, None) is other


def test_another_name() -> None:
    name: Any = "daily"
    with pytest.raises(ValueError, match="'auto', 'websocket', 'eval'"):
        ways_to(WS, name)


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
    """It is where Pipecat's runner has it; a connect endpoint says nothing of the kind."""
    websocket, eval_way = ways_to(url)
    assert websocket.bot_url is not None
    assert eval_way.bot_url is not None
    assert eval_way.bot_url.ws_url == route
    assert eval_way.bot_url.endpoints == websocket.bot_url.endpoints
    (own_way,) = ways_to(url, EvalTransport(skip_tts=True))
    assert own_way.bot_url == eval_way.bot_url
