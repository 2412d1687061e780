"""`start_bot()` and `start_bot_and_connect()`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rtvi_sync import (
    APIRequest,
    BotAlreadyStartedError,
    CloseInfo,
    ConnectionTimeoutError,
    DisconnectedError,
    InvalidTransportParamsError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    StartBotError,
    TransportState,
    WebSocketTransport,
)
from tests.client.helpers import SOON, InThread, memory_client, threads_of_package, transport_of
from tests.client.http_server import Answer, Request, ScriptedServer
from tests.loopback import Peer, Server


def bundle_of(client: RTVIClient) -> Any:
    return transport_of(client).auth_bundle


class TestStartBot:
    def test_request(self, server: ScriptedServer) -> None:
        """It posts the transport's name and the data of params and call, returns the answer and does not connect."""
        server.answers["/start"] = Answer({"wsUrl": "ws://x", "token": None})
        client = memory_client(
            params={"base_url": server.url, "request_data": {"a": 1, "b": 1}, "headers": {"X-A": "1", "X-B": "1"}}
        )
        states: list[TransportState] = []
        client.on("transport_state_changed", states.append)
        answer = client.start_bot(f"{server.url}/start", {"b": 2, "body": {"x": 1}}, {"X-B": "2"})
        assert answer == {"wsUrl": "ws://x", "token": None}
        (request,) = server.requests
        assert request.body == {"transport": "memory", "a": 1, "b": 2, "body": {"x": 1}}
        assert (request.headers["x-a"], request.headers["x-b"]) == ("1", "2")
        assert client.state is TransportState.AUTHENTICATED
        assert threads_of_package() == []
        client.connect(answer)
        assert bundle_of(client) == answer
        client.disconnect()
        assert len(server.requests) == 1
        assert states[:3] == [TransportState.AUTHENTICATING, TransportState.AUTHENTICATED, TransportState.INITIALIZING]

    def test_bot_started(self, server: ScriptedServer) -> None:
        """The event `bot_started` has the answer, after `start_bot()` and on the way of `start_bot_and_connect()`."""
        server.answers["/start"] = Answer({"sessionId": "7"})
        client = memory_client()
        heard: list[Any] = []
        client.on("bot_started", lambda data: heard.append(data.response))
        client.on("bot_ready", lambda: heard.append("ready"))
        client.start_bot(f"{server.url}/start")
        client.disconnect()
        client.start_bot_and_connect(f"{server.url}/start")
        client.disconnect()
        assert heard == [{"sessionId": "7"}, {"sessionId": "7"}, "ready"]

    def test_other_origin(self, server: ScriptedServer) -> None:
        """Headers and data of the params are for `base_url`'s origin only; another port is another origin."""
        server.answers["/start"] = Answer({})
        client = memory_client(
            params={"base_url": "http://127.0.0.1:1", "request_data": {"a": 1}, "headers": {"X-A": "1"}}
        )
        client.start_bot(f"{server.url}/start", {"b": 2})
        assert server.requests[0].body == {"transport": "memory", "b": 2}
        assert "x-a" not in server.requests[0].headers

    @pytest.mark.parametrize("base_url", [None, "nonsense", "http://[", "http://127.0.0.1:notaport"])
    def test_without_a_sensible_base_url(self, server: ScriptedServer, base_url: str | None) -> None:
        """Nor are they for anybody if `base_url` has no origin."""
        server.answers["/start"] = Answer({})
        client = memory_client(params={"base_url": base_url, "headers": {"X-A": "1"}})
        client.start_bot(f"{server.url}/start")
        assert "x-a" not in server.requests[0].headers

    @pytest.mark.parametrize("data", [{"transport": "daily"}, {"transport": None}])
    def test_transport_of_the_callers(self, server: ScriptedServer, data: dict[str, Any]) -> None:
        """A `transport` that the caller sets is left as it is."""
        server.answers["/start"] = Answer({})
        memory_client().start_bot(f"{server.url}/start", data)
        assert server.requests[0].body == data

    def test_without_a_transport(self, server: ScriptedServer) -> None:
        """It works without a transport, too, and names the kind then."""
        server.answers["/start"] = Answer({"a": 1})
        assert RTVIClient().start_bot(f"{server.url}/start") == {"a": 1}
        assert server.requests[0].body == {"transport": "custom"}

    def test_the_websocket_transport_has_the_runners_name(self, server: ScriptedServer) -> None:
        """Pipecat's runner calls it "websocket"."""
        server.answers["/start"] = Answer({})
        RTVIClient(transport=WebSocketTransport()).start_bot(f"{server.url}/start")
        assert server.requests[0].body == {"transport": "websocket"}

    @pytest.mark.parametrize("as_mapping", [False, True])
    def test_api_request(self, server: ScriptedServer, as_mapping: bool) -> None:
        """One object, or a mapping with the keys of the JavaScript client, says it all."""
        server.answers["/start"] = Answer({})
        url = f"{server.url}/start"
        request: Any = (
            {"endpoint": url, "headers": {"X-A": "1"}, "requestData": {"n": 1}}
            if as_mapping
            else APIRequest(endpoint=url, headers={"X-A": "1"}, request_data={"n": 1})
        )
        memory_client().start_bot(request)
        assert server.requests[0].body == {"transport": "memory", "n": 1}
        assert server.requests[0].headers["x-a"] == "1"

    def test_api_request_and_parts(self) -> None:
        """An APIRequest is whole; parts besides it are a mistake."""
        with pytest.raises(TypeError, match="either an APIRequest or its parts"):
            memory_client().start_bot(APIRequest(endpoint="http://x"), {"n": 1})

    def test_refusal(self, server: ScriptedServer) -> None:
        """A refusal raises `StartBotError` with the status; the state is `error`, and the next call works."""
        server.answers["/start"] = Answer({"detail": "Transport 'webrtc' is not allowed."}, 400)
        client = memory_client()
        with pytest.raises(StartBotError, match="not allowed") as caught:
            client.start_bot(f"{server.url}/start")
        assert caught.value.status == 400
        assert client.state is TransportState.ERROR
        server.answers["/start"] = Answer({})
        client.start_bot(f"{server.url}/start")
        assert client.state is TransportState.AUTHENTICATED

    def test_timeout(self) -> None:
        """Its own limit is in seconds; when it passes the state is `error` and no thread is left."""
        client = memory_client(connect_timeout=None)
        with Server(Peer.hold) as server:
            with pytest.raises(ConnectionTimeoutError) as caught:
                client.start_bot(f"http://127.0.0.1:{server.port}/start", timeout=0.3)
            assert caught.value.phase == "http"
            assert caught.value.elapsed == pytest.approx(0.3, abs=0.2)
            assert client.state is TransportState.ERROR
            assert threads_of_package() == []

    def test_the_clients_limit(self) -> None:
        """Without one of its own the limit of the client applies."""
        client = memory_client(connect_timeout=0.3)
        with Server(Peer.hold) as server, pytest.raises(ConnectionTimeoutError):
            client.start_bot(f"http://127.0.0.1:{server.port}/start")

    def test_disconnect_from_another_thread(self) -> None:
        """`disconnect()` abandons it."""
        asked = threading.Event()

        def serve(peer: Peer) -> None:
            asked.set()
            peer.hold()

        client = memory_client(connect_timeout=None)
        with Server(serve) as server:
            starting = InThread(lambda: client.start_bot(f"http://127.0.0.1:{server.port}/start"))
            assert asked.wait(SOON)
            client.disconnect()
            error = starting.error(2.0)
        assert isinstance(error, DisconnectedError)
        assert error.initiator == "client"
        assert client.state is TransportState.DISCONNECTED

    def test_disconnect_after_it(self, server: ScriptedServer) -> None:
        """A bot that was started and not connected to: `disconnect()` brings the client back to the beginning."""
        server.answers["/start"] = Answer({})
        client = memory_client()
        client.start_bot(f"{server.url}/start")
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED
        assert threads_of_package() == []

    def test_during_a_session(self, server: ScriptedServer) -> None:
        """While a session is active there is nothing to start, and the session goes on."""
        with memory_client() as client:
            with pytest.raises(BotAlreadyStartedError, match=r"disconnect\(\)"):
                client.start_bot(f"{server.url}/start")
            assert client.send_client_request("ping", 1) == 1
        assert server.requests == []

    def test_what_is_told_of_the_last_session_meanwhile(self, server: ScriptedServer) -> None:
        """That no further attempt replaces a lost session may be told while a bot is being started: its state stays."""
        client = memory_client()

        def answer(_: Request) -> Answer:
            client._connector.announce(RTVIEvent.RECONNECT_FAILED, None)
            client._connector.give_up(CloseInfo())
            return Answer({})

        server.answers["/start"] = answer
        client.start_bot(f"{server.url}/start")
        assert client.state is TransportState.AUTHENTICATED
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED

    def test_start_bot_and_connect(self, server: ScriptedServer) -> None:
        """Both in one: one request, its answer to the transport, all states, and the ready bot as the result."""
        server.answers["/start"] = Answer({"wsUrl": "ws://x"})
        client = memory_client(params={"base_url": server.url, "headers": {"X-A": "1"}})
        states: list[TransportState] = []
        client.on("transport_state_changed", states.append)
        bot = client.start_bot_and_connect(f"{server.url}/start", {"n": 1})
        assert bot.version == "2.2.0"
        assert bundle_of(client) == {"wsUrl": "ws://x"}
        client.disconnect()
        assert [str(s) for s in states] == [
            "initializing",
            "initialized",
            "authenticating",
            "authenticated",
            "connecting",
            "connected",
            "ready",
            "disconnecting",
            "disconnected",
        ]
        assert [r.body for r in server.requests] == [{"transport": "memory", "n": 1}]
        assert server.requests[0].headers["x-a"] == "1"

    def test_start_bot_and_connect_has_one_limit(self, server: ScriptedServer) -> None:
        """The limit covers the bot's readiness too."""
        server.answers["/start"] = Answer({})
        client = memory_client(lambda *_: None, connect_timeout=None)
        with pytest.raises(ConnectionTimeoutError) as caught:
            client.start_bot_and_connect(f"{server.url}/start", timeout=0.4)
        assert caught.value.phase == "bot-ready"
        assert caught.value.elapsed == pytest.approx(0.4, abs=0.2)

    def test_start_bot_and_connect_without_a_transport(self, server: ScriptedServer) -> None:
        """A bot that nobody could talk to is not started."""
        with pytest.raises(InvalidTransportParamsError):
            RTVIClient().start_bot_and_connect(f"{server.url}/start")
        assert server.requests == []

    @pytest.mark.parametrize("endpoint", ["/start", "start", "ftp://x/start", "http://", ""])
    def test_no_url(self, endpoint: str) -> None:
        """Something that is no HTTP URL is a `StartBotError`, and no hang."""
        client = memory_client()
        with pytest.raises(StartBotError):
            client.start_bot(endpoint)
        assert client.state is TransportState.ERROR

    def test_after_close(self, server: ScriptedServer) -> None:
        """A closed client starts nothing."""
        client = memory_client()
        client.close()
        with pytest.raises(RTVIError, match="closed for good"):
            client.start_bot(f"{server.url}/start")
        assert server.requests == []
