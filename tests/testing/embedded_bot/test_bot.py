"""The embedded bot as a server: start, stop, many clients, and its clean-up."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rtvi_sync import RTVIClient
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot, FaultProxy, ProviderAPI, Reply
from tests.support.slowness import GUARD, takes
from tests.support.threads import count_descriptors
from tests.support.wavs import silence, tone

from .bot_client import QUICK, Client, Talk, names, pcm_of, threads_of_bots


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


def test_ipv6() -> None:
    """The bot's two servers listen at an IPv6 address, which their URLs have in brackets."""
    with EmbeddedBot(host="::1", replies="Yes.") as bot:
        assert all("://[::1]:" in url for url in (bot.base_url, bot.ws_url))
        for url in bot.base_url, bot.ws_url:
            with RTVIClient.for_url(url, enable_mic=False, speaker=NullSink()) as client:
                assert client.ask("Well?", timeout=GUARD).bot_text == "Yes."


def test_stop_leaves_nothing_behind() -> None:
    """With clients in any state, `stop()` leaves no more threads and descriptors than before."""
    before = count_descriptors()
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
            line.settimeout(GUARD)
            assert line.recv(1) == b""
        with pytest.raises(ConnectionClosed) as caught:
            idle.recv(GUARD)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012
        with pytest.raises(ConnectionClosed):
            listening.until("never")
    assert count_descriptors() == before
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
        assert flowing.wait(GUARD)
        with takes(5.0):
            bot.stop()
        thread.join(GUARD)

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


def test_each_server_is_started_in_one_line() -> None:
    """`start()` returns its object, for a notebook that has no block around its cells."""
    bot = EmbeddedBot().start()
    proxy = FaultProxy("127.0.0.1", 9).start()
    provider = ProviderAPI().start()
    try:
        assert all((bot.base_url, proxy.port, provider.url))
    finally:
        for server in (provider, proxy, bot):
            server.stop()


def test_a_port_that_is_taken_leaves_nothing_behind() -> None:
    """A `start()` that fails leaves no thread and no descriptor."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bot = EmbeddedBot(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            bot.start()

    assert threads_of_bots() == []


def test_what_the_bot_has_heard(talk: Talk) -> None:
    """The texts and speech of users are kept in order, over all sessions; the messages of others are not."""
    with EmbeddedBot(version="1.2.0", transcripts="Spoken words", hangover=QUICK) as bot:
        first, second = talk(bot), talk(bot)
        first.send("send-text", {"content": "Typed words"})
        bot.assert_heard("typed", timeout=GUARD)
        first.send("append-to-context", {"role": "system", "content": "Be brief."})
        first.send("append-to-context", {"role": "user", "content": "A note"})
        bot.assert_heard("note", timeout=GUARD)
        second.say(tone(0.2) + silence(0.4))
        bot.assert_heard("^Typed", "spoken words$", timeout=GUARD)

        assert bot.heard == ["Typed words", "A note", "Spoken words"]


def test_what_the_bot_has_not_heard(talk: Talk) -> None:
    """The error has the first missing pattern, and the texts heard; the order counts."""
    with EmbeddedBot() as bot:
        with pytest.raises(AssertionError, match=r"Users did not say 'Oslo' within 0 s\nthe bot heard nothing"):
            bot.assert_heard("Oslo", timeout=0)
        client = talk(bot)
        client.send("send-text", {"content": "Oslo"})
        client.send("send-text", {"content": "Hello"})
        bot.assert_heard("Oslo", "Hello", timeout=GUARD)
        expected = r"Users did not say 'Oslo' within 0 s\nthe bot heard:\n  1  'Oslo'\n  2  'Hello'$"
        with pytest.raises(AssertionError, match=expected):
            bot.assert_heard("Hello", "Oslo", timeout=0)
        with pytest.raises(ValueError, match=r"pattern must be a regular expression \(a str\), not '\('"):
            bot.assert_heard("(")


@pytest.mark.parametrize(("greeting", "is_written"), [("Welcome.", True), (Reply(filler="Welcome."), False)])
def test_a_bot_that_greets(talk: Talk, greeting: str | Reply, is_written: bool) -> None:
    """A bot with a greeting speaks when it is ready, with or without its model, and remembers its words."""
    with EmbeddedBot(greeting=greeting) as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "2.2.0"})
        client.until("bot-ready")
        items = client.until("bot-stopped-speaking")
        context = bot.wait_for_session().context

    assert ("bot-llm-started" in names(items)) is is_written
    assert "user-llm-text" not in names(items)
    assert context == [{"role": "assistant", "content": "Welcome."}]
