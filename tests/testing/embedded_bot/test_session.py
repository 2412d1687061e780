"""Control of an embedded bot's sessions by tests, and the end of the bot."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rtvi_sync.errors import DisconnectedError, MissingExtraError, RequestTimeoutError
from rtvi_sync.protocol.frames import AudioRawFrame, InterruptionFrame
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD, takes
from tests.support.threads import descriptors

from .bot_client import LIMIT, QUICK, RATE, Client, Talk, pcm_of, silence, threads_of_bots, tone


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
        assert client.connection.recv(LIMIT) == b"\xff"


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

        second = session.wait_for_message("client-message", LIMIT, where=lambda message: message["data"]["t"] == "b")

        assert second["data"]["t"] == "b"
        assert session.wait_for_message("client-message")["data"]["t"] == "a"
        assert [message["type"] for message in session.messages] == ["client-message"] * 2
        assert session.audio == silence(0.2) + b"\1\0"
        assert (session.path, session.headers["x-test"]) == ("/ws?token=x", "yes")
        assert session.ended is None
        client.connection.close(4001, "enough")
        end = session.wait_ended(LIMIT)
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
            session.wait_for_message("send-text", LIMIT)
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


def test_a_hundred_clients_at_once(talk: Talk) -> None:
    """Each of many clients has its own conversation, and all of them run at the same time."""
    with EmbeddedBot(replies="Yes.", hangover=QUICK) as bot:
        clients = [talk(bot) for _ in range(100)]
        for number, client in enumerate(clients):
            client.send("client-ready", {"version": "2.2.0"}, id=str(number))
        for number, client in enumerate(clients):
            assert client.message("bot-ready")["id"] == str(number)
        assert len(bot.sessions) == 100
        for client in clients:
            client.say(tone(0.2) + silence(0.25))
        for client in clients:
            assert pcm_of(client.until("bot-stopped-speaking"))[: len(tone(0.2))] == tone(0.2)


def test_stop_leaves_nothing_behind() -> None:
    """With clients in any state, `stop()` leaves no more threads and descriptors than before."""
    before = descriptors()
    bot = EmbeddedBot(replies="A very long reply of many words " * 20)
    bot.start()
    http, ws = (int(url.split(":")[2].split("/")[0]) for url in (bot.base_url, bot.ws_url))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in (http, ws)]
        idle = stack.enter_context(connect(bot.ws_url, close_timeout=1))
        listening = Client(stack.enter_context(connect(bot.ws_url, close_timeout=1)))
        listening.send("send-text", {"content": "Talk"})
        listening.until("bot-started-speaking")
        assert threads_of_bots() != []

        bot.stop()

        assert threads_of_bots() == []
        for line in silent:
            line.settimeout(LIMIT)
            assert line.recv(1) == b""
        with pytest.raises(ConnectionClosed) as caught:
            idle.recv(LIMIT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012
        with pytest.raises(ConnectionClosed):
            listening.until("never")
    assert descriptors() == before
    bot.stop()


def test_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    """A client that has stopped reading is cut: `stop()` returns within its limit."""
    with EmbeddedBot() as bot, socket.create_connection(("127.0.0.1", int(bot.ws_url.split(":")[2][:-3]))) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        session = bot.wait_for_session()
        flowing = threading.Event()

        def flood() -> None:
            with contextlib.suppress(DisconnectedError):
                while True:
                    session.send_raw(bytes(10_000))
                    flowing.set()

        thread = threading.Thread(target=flood)
        thread.start()
        assert flowing.wait(LIMIT)
        with takes(5.0):
            bot.stop()
        thread.join(LIMIT)

    assert not thread.is_alive()
    assert threads_of_bots() == []


def test_a_bot_can_be_started_again() -> None:
    """A stopped bot can be started again; a running one raises."""
    bot = EmbeddedBot()
    for _ in range(2):
        with bot:
            with pytest.raises(RuntimeError, match="running"):
                bot.start()
            with connect(bot.ws_url) as connection:
                Client(connection).send("client-message", {"t": "x"})
                Client(connection).message("server-response")


def test_a_port_that_is_taken_leaves_nothing_behind() -> None:
    """A `start()` that fails leaves no thread and no descriptor."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bot = EmbeddedBot(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            bot.start()

    assert threads_of_bots() == []


def test_a_missing_library_is_named() -> None:
    """The import needs no WebSocket library; `start()` names the extra that installs it."""
    code = (
        "import sys; sys.modules['websockets'] = None\n"
        "from rtvi_sync.testing import EmbeddedBot\n"
        "from rtvi_sync.errors import MissingExtraError\n"
        "try: EmbeddedBot().start()\n"
        "except MissingExtraError as error: print(error, error.extra)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD, check=True)

    assert done.stdout.strip() == f"{MissingExtraError('EmbeddedBot', 'testing')} testing"
