"""The ways to reach a real bot: its own server, Pipecat's standalone server, its development runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    APIRequest,
    DisconnectedError,
    MessageTooLargeError,
    RTVIClient,
    StartBotError,
    TransportStartError,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink, SilenceSource
from tests.support.slowness import GUARD

from .conftest import BotServer


def client(transport: WebSocketTransport | None = None, **options: Any) -> RTVIClient:
    """Return a client for a bot that is reached in one way or another."""
    given: dict[str, Any] = {"connect_timeout": 20, "mic": SilenceSource(), "speaker": NullSink(), **options}
    return RTVIClient(transport=transport or WebSocketTransport(), **given)


def test_standalone_server(pipecat_standalone: BotServer) -> None:
    """The standalone server is reached by its WebSocket URL alone."""
    with client(WebSocketTransport(pipecat_standalone.ws_url)) as bot:
        assert bot.send_client_request("ping", 1) == {"pong": 1}


def test_standalone_server_takes_one_client(pipecat_standalone: BotServer) -> None:
    """A second client is told that the server is taken; the first is undisturbed."""
    with client(WebSocketTransport(pipecat_standalone.ws_url)) as first:
        with pytest.raises(DisconnectedError, match="already has a connected client") as refused:
            client(WebSocketTransport(pipecat_standalone.ws_url)).connect()
        assert refused.value.code == 1013
        assert first.send_client_request("ping", 1) == {"pong": 1}


def test_largest_message_of_the_standalone_server(pipecat_standalone: BotServer) -> None:
    """A message just under our default limit is taken by the server whose limit it is; one over it is never sent."""
    with client(WebSocketTransport(pipecat_standalone.ws_url)) as bot:
        overhead = 200
        payload = "x" * (1_048_576 - overhead)
        assert bot.send_client_request("ping", payload, timeout=GUARD) == {"pong": payload}
        with pytest.raises(MessageTooLargeError):
            bot.send_client_request("ping", "x" * 1_048_576)
        assert bot.send_client_request("ping", 1) == {"pong": 1}


def test_runner(pipecat_runner: BotServer) -> None:
    """start_bot() asks the runner for a WebSocket bot; connect() takes its answer as it is."""
    bot = client()
    states: list[str] = []
    bot.on("transport_state_changed", lambda state: states.append(state.value))

    bundle = bot.start_bot(f"{pipecat_runner.base_url}/start")
    assert bot.state.value == "authenticated"
    assert bundle["token"] is None
    bot.connect(bundle)
    assert bot.send_client_request("ping", 1) == {"pong": 1}
    bot.disconnect()

    assert states[:2] == ["authenticating", "authenticated"]
    assert states[-1] == "disconnected"


def test_runner_with_tokens(pipecat_process: Callable[..., BotServer]) -> None:
    """A token is good for one connection; a new one is fetched by the next start_bot_and_connect()."""
    server = pipecat_process("runner", "--ws-auth", "token")
    request = APIRequest(endpoint=f"{server.base_url}/start")
    bot = client()

    for _ in range(2):
        bot.start_bot_and_connect(request)
        assert bot.send_client_request("ping", 1) == {"pong": 1}
        bot.disconnect()

    bundle = bot.start_bot(request)
    bot.connect(bundle)
    bot.disconnect()
    with pytest.raises(TransportStartError, match="used before") as refused:
        bot.connect(bundle)
    assert refused.value.status == 403
    assert bundle["token"] not in str(refused.value)
    with pytest.raises(TransportStartError):
        bot.connect({"wsUrl": bundle["wsUrl"]})


@pytest.mark.matrix
def test_token_in_a_header(pipecat_process: Callable[..., BotServer]) -> None:
    """The runner takes the token as Authorization too."""
    server = pipecat_process("runner", "--ws-auth", "token")
    bot = client(WebSocketTransport(token_in="header"))

    bot.start_bot_and_connect(f"{server.base_url}/start")

    assert bot.connected
    bot.disconnect()


@pytest.mark.matrix
def test_runner_that_advertises_tls_it_does_not_speak(pipecat_process: Callable[..., BotServer]) -> None:
    """The runner's wss:// without TLS, passed on, gets an error that says how to go on; going on so works."""
    server = pipecat_process("runner", "--host", "127.0.0.1")
    bot = client()
    bundle = {**bot.start_bot(f"{server.base_url}/start")}
    with pytest.raises(TransportStartError, match=r"does not speak TLS.*'ws://") as refused:
        bot.connect(bundle)
    advice = str(refused.value).rpartition("plain address, '")[2].partition("'")[0]

    with client(WebSocketTransport(advice)) as bot:
        assert bot.send_client_request("ping", 1) == {"pong": 1}


def test_runner_refuses_another_transport(pipecat_runner: BotServer) -> None:
    """The server's own words reach the program."""
    with pytest.raises(StartBotError, match="Server is configured for 'websocket' only") as refused:
        client().start_bot(f"{pipecat_runner.base_url}/start", {"transport": "webrtc"})
    assert refused.value.status == 400


def test_wrong_endpoint(pipecat_runner: BotServer) -> None:
    """The runner has no /connect, and the error names the request."""
    bot = client(params={"base_url": pipecat_runner.base_url})
    with pytest.raises(StartBotError, match="/connect/ answered 404") as refused:
        bot.connect()
    assert refused.value.status == 404
    assert bot.state.value == "error"
    bot.params.endpoints.connect = "start"
    bot.params.request_data = {"transport": "websocket"}
    bot.connect()
    assert bot.connected
    bot.disconnect()
