"""Messages sent before `disconnect()`: they leave while the server reads, and a warning counts the rest."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import threading
import time

import pytest

from rtvi_sync import CloseInfo, DisconnectedError, ReconnectPolicy, RTVIClient, TransportState, WebSocketTransport
from rtvi_sync.media import NullSink
from tests.support import limits, part_probes
from tests.support.clients import transport_of
from tests.support.loopback import trusting
from tests.support.slowness import GUARD, at_some_limit, takes
from tests.support.threads import running
from tests.support.waiting import until
from tests.support.websocket import BINARY, CLOSE, TEXT, Bot, frame
from tests.support.websocket_bots import BotServer, message_frame, text_in

MESSAGES, SIZE = 20, 500_000


@contextlib.contextmanager
def connected(to: BotServer, kind=WebSocketTransport, **options):
    """Yield a client whose bot is ready, the bot's end of the line, and a list of how the session ended."""
    ends: list[CloseInfo] = []
    transport = kind(to.url)
    client = RTVIClient(
        transport=transport, ssl_context=trusting(), proxy=False, enable_mic=False, speaker=NullSink(), **options
    )
    client.on("disconnected", ends.append)
    with running(client.connect) as connecting:
        bot = to.arrival()[1]
        bot.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        message = message_in(bot.receive())
        while message["type"] != "client-ready":
            message = message_in(bot.receive())
        ready = {"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": {"version": "2.2.0"}}
        bot.send(message_frame(kind, json.dumps(ready)))
        connecting.get()
    try:
        yield client, bot, ends
    finally:
        client.close()


def send_all(client: RTVIClient) -> None:
    for n in range(MESSAGES):
        client.send_client_message("note", [n, "x" * SIZE])


def message_in(received: tuple[int, bytes]) -> dict:
    opcode, payload = received
    assert opcode in (BINARY, TEXT)
    return json.loads(payload if opcode == TEXT else text_in(payload))


def number_in(received: tuple[int, bytes]) -> int:
    """Return which of `send_all()`'s messages a frame is."""
    return message_in(received)["data"]["d"][0]


def test_messages_leave_as_long_as_the_server_takes_them(server, monkeypatch):
    """A server that reads slowly, for longer than one that reads nothing is waited for, gets all, then the close."""
    limits.patch(monkeypatch, teardown=GUARD)

    def check(limit: float) -> None:
        limits.patch(monkeypatch, polite_close=limit)
        with connected(server) as (client, bot, ends):
            send_all(client)
            with running(client.disconnect) as disconnecting:
                until(lambda: client.state is TransportState.DISCONNECTING)
                slow_until = time.monotonic() + 1.5 * limit
                numbers = []
                while time.monotonic() < slow_until:
                    numbers.append(number_in(bot.receive()))
                    threading.Event().wait(limit / 5)
                numbers += [number_in(bot.receive()) for _ in range(MESSAGES - len(numbers))]
                assert bot.receive() == (CLOSE, struct.pack("!H", 1000))
                bot.send(frame(CLOSE, struct.pack("!H", 1000)))
                disconnecting.get()
        assert numbers == list(range(MESSAGES))
        assert ends == [CloseInfo(initiator="client")]

    at_some_limit(check)


def test_messages_that_leave_too_slowly_are_told(server, monkeypatch):
    """A server that goes on reading, but would not have all in time, ends the close no later than another one."""
    limits.patch(monkeypatch, teardown=60.0)
    limits.patch(monkeypatch, sending_share=0.5 / 48.0)  # of the transport's 48 s: 0.5 s
    with connected(server) as (client, bot, ends):
        send_all(client)
        with takes(1.0, at_least=0.5), running(client.disconnect) as disconnecting:
            while not disconnecting.done:
                with contextlib.suppress(OSError):  # the client has closed it already
                    bot.sock.recv(64 * 1024)
                threading.Event().wait(0.02)
    assert "Messages were lost, at least " in str(ends[0].error)


def test_what_could_not_leave_is_told(kind, server, caplog):
    """A server that reads nothing ends the close after the timeout. The messages that it did not take are the error
    of `disconnected` and one warning; they cause no reconnect, whatever the policy would say."""
    asked: list[BaseException] = []

    def retry_on(error: BaseException) -> bool:
        asked.append(error)
        return True

    policy = ReconnectPolicy(retry_on=retry_on)
    with connected(server, kind, reconnect=policy) as (client, _, ends), caplog.at_level(logging.WARNING):
        send_all(client)
        client.disconnect()
        (info,) = ends
        assert (info.initiator, info.reconnecting, type(info.error)) == ("client", False, DisconnectedError)
        assert "Messages were lost, at least " in str(info.error)
        assert [record.getMessage() for record in caplog.records] == [str(info.error)]
        assert client.stats().reconnects == 0
        assert asked == []


def closes(bot: Bot) -> None:
    bot.send(frame(CLOSE, struct.pack("!H", 1000)))


@pytest.mark.parametrize(
    ("leave", "error"), [(closes, "Messages were lost"), (Bot.reset, "reset")], ids=["closes", "resets"]
)
def test_a_server_that_ends_first(kind, plain, caplog, leave, error):
    """Messages that the server had not read are reported in the same way, even if a new session follows. A broken
    connection has an error of its own.
    """
    policy = ReconnectPolicy(initial_delay=GUARD, retry_on=lambda _: True)
    with connected(plain, kind, reconnect=policy) as (client, bot, ends), caplog.at_level(logging.WARNING):
        send_all(client)
        leave(bot)
        until(lambda: ends)
        (info,) = ends
        assert (info.code, info.reconnecting) == (1000 if leave is closes else None, True)
        assert error in str(info.error)
        (told,) = [line for line in caplog.messages if line.startswith("Messages were lost, at least ")]
        assert "disconnect" not in told


def test_an_io_thread_that_comes_late(plain, monkeypatch):
    """A close that takes too long reports that the number of sent messages is unknown."""
    limits.patch(monkeypatch, teardown=0.5)
    with connected(plain) as (client, _, ends):
        release = threading.Event()
        part_probes.run_on_io_thread(client, release.wait)
        client.send_client_message("note")
        client.disconnect()
        assert "may be lost" in str(ends[0].error)
        release.set()


def test_an_abort_of_a_finished_attempt(plain):
    """`abort()` of a connect handler's controller loses no message of the session: its bot is ready."""
    controllers = []

    def handler(_params, _timeout, abort):
        controllers.append(abort)

    with connected(plain, custom_connect_handler=handler) as (client, bot, ends):
        assert not controllers[0].abort()
        send_all(client)
        with running(client.disconnect) as disconnecting:
            assert [number_in(bot.receive()) for _ in range(MESSAGES)] == list(range(MESSAGES))
            assert bot.receive()[0] == CLOSE
            closes(bot)
            disconnecting.get()
    assert ends == [CloseInfo(initiator="client")]


def test_a_transport_that_says_what_was_lost(caplog):
    """A transport of the application's says so by raising `DisconnectedError`; another session can follow."""
    from tests.support.clients import memory_client

    client = memory_client()
    ends: list[CloseInfo] = []
    client.on("disconnected", ends.append)
    transport = transport_of(client)
    close = transport.disconnect

    def disconnect() -> None:
        close()
        raise DisconnectedError("3 messages were lost")

    transport.disconnect = disconnect
    client.connect()
    client.disconnect()
    transport.disconnect = close
    assert str(ends[0].error) == "3 messages were lost"
    assert [record.getMessage() for record in caplog.records] == ["3 messages were lost"]
    with client:
        pass
    assert ends[1].error is None


def test_a_subclass_with_a_close_of_its_own(server, monkeypatch, caplog):
    """A subclass that hangs is left behind, as any transport of the application."""
    limits.patch(monkeypatch, teardown=1.0)
    let_go = threading.Event()

    class Mine(WebSocketTransport):
        def disconnect(self) -> None:
            super().disconnect()
            let_go.wait(GUARD)

    with connected(server, Mine) as (client, _, ends):
        try:
            client.disconnect()
            assert client.state is TransportState.DISCONNECTED
        finally:
            let_go.set()
        assert "does not disconnect in time" in str(ends[0].error)


def test_the_exit_leaves_less_time():
    """`time_to_close()` stays below the limit that the end of the session has, at the exit of the interpreter too."""
    from tests.support.clients import memory_client

    client, times = memory_client(), []
    transport = transport_of(client)
    close = transport.disconnect

    def disconnect() -> None:
        times.append(transport.options.time_to_close())
        close()

    transport.disconnect = disconnect
    client.connect()
    client.disconnect()
    client.connect()
    part_probes.end_at_exit(client, 1.0)
    assert 1.0 < times[0] < 4.0
    assert 0.0 < times[1] < 1.0
