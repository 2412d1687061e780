"""Calls whose session ends at the worst moment report the end: code, reason and initiator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    EvalTransport,
    MemoryTransport,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    WebSocketTransport,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.waiting import until

LOST = CloseInfo(code=1008, reason="out of money", initiator="server")


class EndsAtMessage(MemoryTransport):
    """Carries a session that the bot ends when a message is sent, after all checks of the call."""

    def send_message(self, message: RTVIMessage) -> None:
        if message.type != "client-ready":
            self.end(LOST)
        super().send_message(message)


CALLS: dict[str, Callable[[RTVIClient], Any]] = {
    "ask": lambda client: client.ask("Hello"),
    "barge_in": lambda client: client.barge_in("Stop!", after="server-message").result(GUARD),
    "send_text": lambda client: client.send_text("Hello"),
    "send_message": lambda client: client.send_message(RTVIMessage("client-message", {"t": "note"})),
    "send_client_message": lambda client: client.send_client_message("note"),
    "send_client_request": lambda client: client.send_client_request("note"),
    "send_ui_event": lambda client: client.send_ui_event("click"),
    "disconnect_bot": lambda client: client.disconnect_bot(),
}


def check(error: RTVIError) -> None:
    """Check that an error reports how the session ended."""
    assert isinstance(error, DisconnectedError), repr(error)
    assert (error.code, error.reason, error.initiator) == (1008, "out of money", "server")
    assert "out of money" in str(error)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_as_a_message_is_sent(call: Callable[[RTVIClient], Any]) -> None:
    """A session that ends while a message is sent makes the call raise an error with its code and reason."""
    transport = EndsAtMessage()
    with RTVIClient(transport=transport, connect_timeout=GUARD) as client:
        client.on("connected", lambda: None)
        if call is CALLS["barge_in"]:
            pending = client.barge_in("Stop!", after="server-message")
            transport.receive(RTVIMessage("server-message", 1))
            call = lambda _: pending.result(GUARD)  # noqa: E731
        with pytest.raises(RTVIError) as caught:
            call(client)
    check(caught.value)


class WatchedSource:
    """A source of silence that calls a function at the look with a number at its sampling rate."""

    def __init__(self, number: int, then: Callable[[], object]) -> None:
        self._left = number
        self._then = then

    @property
    def sample_rate_hz(self) -> int:
        self._left -= 1
        if not self._left:
            self._then()
        return 16_000

    @property
    def reached(self) -> bool:
        return self._left <= 0

    def read(self, frames: int) -> bytes:
        return b""

    def close(self) -> None:
        """Do nothing."""


def test_as_a_question_is_about_to_be_said() -> None:
    """A session that ends while `ask()` checks its source raises an error that blames no source or device."""
    for number in itertools.count(1):
        transport = MemoryTransport(audio=True)
        with RTVIClient(transport=transport, mic=False, speaker=False, connect_timeout=GUARD) as client:

            def end(transport: MemoryTransport = transport, client: RTVIClient = client) -> None:
                transport.end(LOST)
                until(lambda: not client.connected)

            source = WatchedSource(number, end)
            with pytest.raises(RTVIError) as caught:
                client.ask(source, timeout=0.1)
            if not source.reached:
                break
            if isinstance(caught.value, BotNotReadyError):  # before it had asked
                assert "out of money" in str(caught.value)
            else:
                check(caught.value)
    assert number > 2


@pytest.mark.parametrize("transport", [WebSocketTransport, EvalTransport])
def test_of_the_transport_itself(transport: type[WebSocketTransport | EvalTransport]) -> None:
    """Sending over a transport whose session has ended raises an error about that end, not "connect first"."""
    message = RTVIMessage("client-message", {"t": "note"})
    with EmbeddedBot() as bot:
        client = RTVIClient.for_url(bot.base_url, transport=transport(), text_only=True, connect_timeout=GUARD)
        assert client.transport is not None
        with pytest.raises(DisconnectedError, match="call connect\\(\\) first"):
            client.transport.send_message(message)
        client.connect()
        bot.wait_for_session(GUARD).close(1008, "out of money")
        until(lambda: not client.connected)
        client.disconnect()
        with pytest.raises(DisconnectedError) as caught:
            client.transport.send_message(message)
    check(caught.value)
