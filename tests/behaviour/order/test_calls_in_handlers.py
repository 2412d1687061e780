"""Calls of the client inside its own handlers."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    RTVIClient,
    RTVIMessage,
    TransportState,
    WouldDeadlockError,
)
from tests.support.clients import bot_says, memory_client, say, transport_of
from tests.support.probes import requests_under_way
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until


class TestCallsInsideHandlers:
    """Invariant "handlers": sends, requests, connect() and disconnect() inside a handler work, waiting for a later
    event raises."""

    def outcome(self, client: RTVIClient, call: Any) -> Any:
        """Return the result or the exception of `call()` inside a handler."""
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def handler() -> None:
            try:
                results.put(call())
            except BaseException as error:
                results.put(error)

        client.once("server_message", handler)
        say(client, 1)
        return results.get(timeout=GUARD)

    def test_send(self, client: RTVIClient) -> None:
        """Sending works."""
        assert self.outcome(client, lambda: client.send_client_message("note", 5)) is None
        assert transport_of(client).sent[-1].data == {"t": "note", "d": 5}

    def test_a_request_is_answered(self, client: RTVIClient) -> None:
        """In a handler, a request is answered: its reply does not pass through the handler's queue."""
        assert self.outcome(client, lambda: client.send_client_request("ping", 7)) == 7

    def test_request_over_websocket(self) -> None:
        """A request in a handler is answered over a real connection too, where the reply arrives on the I/O thread."""
        from rtvi_sync import WebSocketTransport
        from rtvi_sync.media import NullSink, SilenceSource
        from rtvi_sync.testing import EmbeddedBot

        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client: RTVIClient
        with (
            EmbeddedBot() as bot,
            RTVIClient(
                transport=WebSocketTransport(bot.ws_url),
                mic=SilenceSource(),
                speaker=NullSink(),
                callbacks={"on_bot_ready": lambda: answers.put(client.send_client_request("ping", 7))},
                connect_timeout=GUARD,
            ) as client,
        ):
            client.on("user_input", lambda: answers.put(client.send_client_request("ping", 8)))
            client.send_text("hello")
            assert answers.get(timeout=GUARD) == 8

    def test_waiting_for_a_later_event(self, client: RTVIClient) -> None:
        """In a handler, waiting for a later event raises `WouldDeadlockError` at once, for any time-out."""
        assert isinstance(self.outcome(client, lambda: client.wait_for("bot_ready")), WouldDeadlockError)
        assert isinstance(self.outcome(client, lambda: client.wait_for("bot_ready", timeout=GUARD)), WouldDeadlockError)
        assert isinstance(self.outcome(client, lambda: next(client.events())), WouldDeadlockError)

    def test_reading_what_a_stream_has_already(self, client: RTVIClient) -> None:
        """A stream may be read in a handler as far as it is filled."""
        stream = client.events("bot_llm_text")
        bot_says(client, "bot-llm-text", {"text": "hi"})
        event = self.outcome(client, lambda: next(stream))
        assert event.data.text == "hi"

    def test_waiting_for_another_client(self, client: RTVIClient) -> None:
        """An event of another client is no deadlock."""
        with memory_client() as other:
            stream = other.events("server_message", timeout=GUARD)

            def wait() -> Any:
                say(other, "from the other")
                return next(stream)

            assert self.outcome(client, wait).data == "from the other"

    def test_disconnect(self, client: RTVIClient) -> None:
        """In a handler, disconnect() returns once the transport is closed; `disconnected` follows the handler."""
        order: list[str] = []
        client.on("disconnected", lambda: order.append("disconnected"))

        def leave() -> Any:
            client.disconnect()
            order.append("returned")
            with pytest.raises(DisconnectedError):
                transport_of(client).send_message(RTVIMessage("x"))
            return client.state

        assert self.outcome(client, leave) is TransportState.DISCONNECTED
        client.disconnect()
        assert order == ["returned", "disconnected"]

    def test_pending_calls_have_failed_when_disconnect_returns(self) -> None:
        """`disconnect()` in a handler fails the requests of other threads."""
        from tests.support.clients import deaf_bot

        with memory_client(deaf_bot, request_timeout=None) as client:
            asking = InThread(lambda: client.send_client_request("never"))
            until(lambda: requests_under_way(client))
            self.outcome(client, client.disconnect)
            assert isinstance(asking.error(), DisconnectedError)

    def test_disconnect_and_connect(self, client: RTVIClient) -> None:
        """A handler may end the session and start a new one."""

        def again() -> Any:
            client.disconnect()
            return client.connect()

        assert self.outcome(client, again).version == "2.2.0"
        assert client.state is TransportState.READY
        assert client.send_client_request("ping", 1) == 1

    def test_connect_in_a_session(self, client: RTVIClient) -> None:
        """In a handler, connect() of a connected client raises `BotAlreadyStartedError`."""
        from rtvi_sync import BotAlreadyStartedError

        assert isinstance(self.outcome(client, client.connect), BotAlreadyStartedError)

    def test_connect_in_disconnected(self) -> None:
        """`connect()` in the handler of `disconnected` works, after every kind of end."""
        connected: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client = memory_client()
        sessions = 0

        def again(info: CloseInfo) -> None:
            nonlocal sessions
            sessions += 1
            if sessions < 4:
                connected.put((info.initiator, client.connect().version))

        client.on("disconnected", again)
        client.connect()
        transport_of(client).end(CloseInfo(initiator="network"))
        assert connected.get(timeout=GUARD) == ("network", "2.2.0")
        client.disconnect_bot()
        assert connected.get(timeout=GUARD) == ("server", "2.2.0")
        client.disconnect()
        assert connected.get(timeout=GUARD) == ("client", "2.2.0")
        until(lambda: client.state is TransportState.READY)
        client.disconnect()
        assert client.state is TransportState.DISCONNECTED
        assert sessions == 4

    def test_new_handlers_and_streams(self, client: RTVIClient) -> None:
        """Registering and opening streams inside a handler works."""
        stream = self.outcome(client, lambda: client.events("server_message", timeout=GUARD))
        say(client, "later")
        assert next(stream).data == "later"
