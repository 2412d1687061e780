"""How sessions end: on which threads, in which order, how fast, and with which leftovers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    CloseInfo,
    DisconnectedError,
    Event,
    RTVIClient,
    RTVIError,
    TransportState,
    signals,
)
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within
from tests.support.clients import (
    bot_says,
    deaf_bot,
    memory_client,
    silent_bot,
    transport_of,
    websocket_client,
)
from tests.support.probes import requests_under_way, set_bot
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, thread_names
from tests.support.waiting import until


@pytest.fixture
def short(limits: Callable[..., None]) -> None:
    """Let `disconnect()` promise half a second instead of five."""
    limits(teardown=0.5)


class TestDisconnect:
    def test_disconnected_was_delivered(self) -> None:
        """When `disconnect()` returns, `disconnected` was delivered at every door and no thread is left."""
        client = memory_client()
        heard: list[str] = []

        def receiver(sender: RTVIClient, event: Event) -> None:
            heard.append("signal")

        def slow() -> None:
            threading.Event().wait(0.1)
            heard.append("handler")

        client.on("disconnected", slow)
        signals.disconnected.connect(receiver, sender=client)
        client.connect()
        client.disconnect()
        assert heard == ["handler", "signal"]
        assert thread_names() == []
        assert client.state is TransportState.DISCONNECTED

    def test_idempotent(self) -> None:
        """disconnect() may be called at any time, any number of times."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.disconnect()
        with client:
            pass
        client.disconnect()
        client.disconnect()
        assert len(heard) == 1

    def test_no_thread_to_be_had_for_a_while(
        self, monkeypatch: pytest.MonkeyPatch, limits: Callable[..., None]
    ) -> None:
        """A session that ends while the system has no thread to give ends when it has one, and not on the io thread."""
        client = memory_client()
        heard: list[str] = []
        client.on("disconnected", lambda: heard.append(threading.current_thread().name))
        client.connect()
        thread_names()  # no thread waits for work any more
        refused: list[threading.Thread] = []
        start = threading.Thread.start

        def refuse(thread: threading.Thread) -> None:
            if "-close-" in thread.name and len(refused) < 3:
                refused.append(thread)
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        limits(no_thread_pause=0.05)  # far below the limit of disconnect()
        transport_of(client).end()
        until(lambda: heard)
        client.disconnect()
        ended = len(refused), [name.rpartition("-")[0] for name in heard], client.state
        assert ended == (3, ["rtvi-worker"], TransportState.DISCONNECTED)

    def test_ten_threads_at_once(self) -> None:
        """disconnect() on ten threads returns on none of them before `disconnected` is delivered, once."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.connect()
        start = threading.Barrier(10)

        def leave() -> None:
            start.wait(GUARD)
            client.disconnect()
            assert len(heard) == 1  # nothing is delivered after it

        for thread in [InThread(leave) for _ in range(10)]:
            thread.get()
        assert len(heard) == 1
        assert thread_names() == []

    def test_on_a_thread_of_the_transports(self) -> None:
        """A transport's own thread may end the session, and a callback of the program's on it may disconnect."""
        client = memory_client()
        client.connect()

        def end() -> None:
            transport_of(client).end()
            client.disconnect()

        InThread(end).get()
        assert client.state is TransportState.DISCONNECTED

    def test_with_statement(self) -> None:
        """`with client:` connects and disconnects, also when the block raises."""
        client = memory_client()
        with client as same:
            assert same is client
            assert client.state.value == "ready"
        assert client.state is TransportState.DISCONNECTED
        with pytest.raises(ZeroDivisionError), client:
            raise ZeroDivisionError
        assert client.state is TransportState.DISCONNECTED

    def test_close_is_for_good(self) -> None:
        """After `close()` nothing can be connected any more."""
        client = memory_client()
        client.connect()
        client.close()
        client.close()
        assert client.state is TransportState.DISCONNECTED
        with pytest.raises(RTVIError, match="closed for good"):
            client.connect()

    def test_close_while_connect_begins(self) -> None:
        """However `close()` on one thread and `connect()` on another fall together, nothing is connected after both."""
        for _ in range(100):
            client = memory_client()
            connecting = InThread(client.connect)
            client.close()
            connecting.thread.join(GUARD)
            assert not client.connected
            with pytest.raises(RTVIError, match="closed for good"):
                client.connect()

    def test_reconnect_right_after_a_remote_end(self) -> None:
        """Invariant "connect() right after waits for the old session": it may be called as soon as the end is known,
        and before."""
        client = memory_client()
        for _ in range(50):
            client.connect()
            ended = client.events("disconnected", timeout=GUARD)
            transport_of(client).end()
            next(ended)
        client.connect()
        transport_of(client).end()
        client.connect()
        assert client.send_client_request("ping", 1) == 1
        client.disconnect()

    def test_order_of_the_steps(self) -> None:
        """Invariant "teardown": sends are gated and waiting calls fail before the transport is closed, `closed` after
        it; the transport is closed on a close thread."""
        client = memory_client(deaf_bot, request_timeout=None)
        transport = transport_of(client)
        real = transport.disconnect
        seen: list[Any] = []
        asking: list[InThread] = []

        def disconnect() -> None:
            seen.append(threading.current_thread().name.split("-")[1])
            seen.append(type(asking[0].error()))
            seen.append(client.state)
            try:
                client.send_text("late")
            except BotNotReadyError:
                seen.append("gated")
            real()
            seen.append("closed")

        transport.disconnect = disconnect
        client.on("disconnected", lambda: seen.append("disconnected"))
        client.connect()
        asking.append(InThread(lambda: client.send_client_request("never")))
        until(lambda: requests_under_way(client) == 1)
        client.disconnect()
        assert seen == ["close", DisconnectedError, TransportState.DISCONNECTING, "gated", "closed", "disconnected"]


class TestLimits:
    @pytest.mark.usefixtures("short")
    def test_a_transport_that_hangs(self, caplog: pytest.LogCaptureFixture) -> None:
        """`disconnect()` returns in time, `disconnected` is delivered, the stack of the hanging thread is logged, and
        the client can connect again.
        """
        client = memory_client()
        transport = transport_of(client)
        real = transport.disconnect
        release = threading.Event()
        heard: list[Any] = []
        client.on("disconnected", heard.append)

        def hang_here() -> None:
            release.wait(GUARD)

        transport.disconnect = hang_here
        client.connect()
        with takes(0.7):
            client.disconnect()
        assert len(heard) == 1
        assert "hang_here" in caplog.text
        assert client.state is TransportState.DISCONNECTED
        transport.disconnect = real
        release.set()
        with client:
            assert client.send_client_request("ping", 1) == 1
        until(lambda: not thread_names())

    def test_a_transport_that_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        """The error of a transport that raises in disconnect() is logged; the session ends as any other."""
        client = memory_client()
        transport = transport_of(client)
        real = transport.disconnect
        heard: list[Any] = []
        client.on("disconnected", heard.append)

        def broken() -> None:
            raise OSError("cannot close")

        transport.disconnect = broken
        client.connect()
        client.disconnect()
        assert heard == [CloseInfo(initiator="client")]
        assert "cannot close" in caplog.text
        transport.disconnect = real
        with client:
            pass

    @pytest.mark.usefixtures("short")
    def test_a_handler_that_does_not_return(self, caplog: pytest.LogCaptureFixture) -> None:
        """At the limit the handler's stack is logged, once, and the events of its session are dropped; the next
        session's events are delivered.
        """
        client = memory_client()
        entered, release = threading.Event(), threading.Event()
        heard: list[Any] = []

        def hang_here(data: Any) -> None:
            if data == "hang":
                entered.set()
                release.wait(GUARD)
            heard.append(data)

        client.on("server_message", hang_here)
        client.on("disconnected", lambda: heard.append("disconnected"))
        stream = client.events("server_message", timeout=GUARD)
        client.connect()
        bot_says(client, "server-message", "hang")
        bot_says(client, "server-message", "dropped")
        assert entered.wait(GUARD)
        with takes(0.7, at_least=0.3):
            client.disconnect()

        def logged() -> list[int]:
            return [record.levelno for record in caplog.records if "hang_here" in record.getMessage()]

        until(logged)  # on a busy machine the log entry follows
        assert logged() == [logging.WARNING]
        client.connect()
        bot_says(client, "server-message", "new")
        release.set()
        client.disconnect()
        assert heard == ["hang", "new", "disconnected"]
        assert [e.data for e in stream] == ["hang"]
        until(lambda: not thread_names())

    @pytest.mark.usefixtures("short")
    def test_only_the_busy_handler_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """The handlers of other clients have nothing to do with it."""
        release = threading.Event()
        entered = threading.Event()

        def another_clients_handler() -> None:
            entered.set()
            release.wait(GUARD)

        other, client = memory_client(), memory_client()
        other.on("server_message", another_clients_handler)
        with other:
            bot_says(other, "server-message")
            assert entered.wait(GUARD)
            with client:
                pass
            assert caplog.records == []
            release.set()

    def test_a_slow_disconnected_handler_that_reconnects(self) -> None:
        """A handler that works on the next session is no handler that hangs, and a failed attempt in it neither."""
        client = memory_client()
        errors: list[BaseException] = []

        def again() -> None:
            set_bot(client, silent_bot)
            try:
                connect_within(client, 0.1)
            except RTVIError as error:
                errors.append(error)

        client.once("disconnected", again)
        client.connect()
        client.disconnect()
        until(lambda: errors)
        until(lambda: not thread_names())
        assert client.state is TransportState.ERROR


class TestPoliteClose:
    def test_the_bot_sees_a_normal_close(self) -> None:
        """`disconnect()` says goodbye: the server sees close code 1000, and all earlier messages arrive."""

        def keep_to_itself(session: Any, message: Any) -> bool:
            return bool(message["type"] == "client-message")

        with EmbeddedBot(handler=keep_to_itself) as bot:
            client = websocket_client(bot)
            for _ in range(10):
                client.connect()
                session = bot.wait_for_session()
                for n in range(20):
                    client.send_client_message("note", n)
                client.disconnect()
                end = session.wait_ended(GUARD)
                assert [m["data"]["d"] for m in session.messages if m["type"] == "client-message"] == list(range(20))
                assert (end.code, end.initiator) == (1000, "client")
