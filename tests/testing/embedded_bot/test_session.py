"""Control of an embedded bot's sessions by tests, and the end of the bot."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rtvi_sync.errors import DisconnectedError, RequestTimeoutError
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.wavs import silence
from tests.support.wire import AudioRawFrame, InterruptionFrame

from .bot_client import RATE, Client, Talk


def test_a_test_can_send_as_the_bot(talk: Talk) -> None:
    """A session sends any message, frame or bytes, from any thread."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.send({"label": "rtvi-ai", "type": "server-message", "data": "hi"})
        session.send_frame(InterruptionFrame())
        session.send_frame(AudioRawFrame(audio=b"\1\2", sample_rate=RATE, id=9, name="mine"))
        session.send_raw(b"\xff")

        assert client.message("server-message")["data"] == "hi"
        assert client.receive() == InterruptionFrame(id=1, name="InterruptionFrame#1")
        assert client.receive() == AudioRawFrame(audio=b"\1\2", sample_rate=RATE, id=9, name="mine")
        assert client.connection.recv(GUARD) == b"\xff"


def test_a_test_can_read_what_arrived() -> None:
    """A session keeps messages and audio, and has the client's request."""
    headers = {"X-Test": "yes"}
    with EmbeddedBot() as bot, connect(f"{bot.ws_url}?token=x", additional_headers=headers) as connection:
        client = Client(connection)
        session = bot.wait_for_session()
        assert bot.sessions == [session]
        client.say(silence(0.1))
        client.say(silence(0.1) + b"\1\0")
        client.send("client-message", {"t": "a"})
        client.send("client-message", {"t": "b"})

        second = session.wait_for_message("client-message", GUARD, where=lambda message: message["data"]["t"] == "b")

        assert second["data"]["t"] == "b"
        assert session.wait_for_message("client-message")["data"]["t"] == "a"
        assert [message["type"] for message in session.messages] == ["client-message"] * 2
        assert session.audio == silence(0.2) + b"\1\0"
        assert (session.path, session.headers["x-test"]) == ("/ws?token=x", "yes")
        assert session.ended is None
        client.connection.close(4001, "enough")
        end = session.wait_ended(GUARD)
        assert (end.code, end.reason, end.initiator) == (4001, "enough", "client")
        assert bot.sessions == []


def test_waiting_has_a_limit(talk: Talk) -> None:
    """A wait raises when its limit passes, and immediately if the session has ended."""
    with EmbeddedBot() as bot:
        with pytest.raises(RequestTimeoutError, match=r"No client connected to the bot within 0\.01 s"):
            bot.wait_for_session(0.01)
        client = talk(bot)
        session = bot.wait_for_session()
        with pytest.raises(RequestTimeoutError, match="'send-text'"):
            session.wait_for_message("send-text", 0.01)
        with pytest.raises(RequestTimeoutError, match="still open"):
            session.wait_ended(0.01)
        client.connection.close()
        with pytest.raises(DisconnectedError, match="'send-text'") as caught:
            session.wait_for_message("send-text", GUARD)
        assert (caught.value.code, caught.value.initiator) == (1000, "client")
        with pytest.raises(DisconnectedError):
            session.send({})


def test_a_test_can_close_with_any_code(talk: Talk) -> None:
    """`close()` performs the closing handshake with the given code and reason."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.close(4321, "because")
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4321, "because")
    assert session.wait_ended().initiator == "server"


def test_a_test_can_drop_the_connection(talk: Talk) -> None:
    """`drop()` ends the stream without a close frame; both ends see a broken connection."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.drop()
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd is None
        assert session.wait_ended().code is None


def test_a_handler_comes_first(talk: Talk) -> None:
    """`handler` gets every message first; True consumes it, an exception is an error-response."""

    def handle(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "action":
            session.send({"label": "rtvi-ai", "type": "action-response", "id": message["id"], "data": {"result": 1}})
            return True
        if message["type"] == "update-config":
            raise ValueError("not today")
        return False

    with EmbeddedBot(handler=handle) as bot:
        client = talk(bot)
        client.send("action", id="abc")
        assert client.message("action-response")["id"] == "abc"
        client.send("update-config", id="def")
        refused = client.message("error-response")
        assert (refused["id"], refused["data"]["error"]) == ("def", "Exception processing message: not today")
        client.send("client-message", {"t": "x"})
        client.message("server-response")
