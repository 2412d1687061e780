"""How sessions end: on which threads, in which order, how fast, and what is left."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
import warnings
import weakref
from typing import Any

import pytest
from websockets.sync.server import ServerConnection
from websockets.sync.server import serve as websocket_server

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    Event,
    RTVIClient,
    RTVIError,
    TransportState,
    WebSocketTransport,
    signals,
)
from rtvi_sync.concurrency.hub import acquire_hub
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.protocol import frames
from rtvi_sync.testing import EmbeddedBot
from tests.client.helpers import (
    SOON,
    InThread,
    bot_says,
    deaf_bot,
    descriptors,
    lanes_of_package,
    memory_client,
    silent_bot,
    threads_of_package,
    transport_of,
    until,
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """`disconnect()` promises half a second instead of five."""
    monkeypatch.setattr("rtvi_sync.session.TEARDOWN_LIMIT", 0.5)


def websocket_client(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    options.setdefault("connect_timeout", SOON)
    return RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=SilenceSource(), speaker=NullSink(), **options)


def own_threads() -> list[str]:
    return [name for name in threads_of_package() if not name.startswith("rtvi-bot-")]


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
        assert threads_of_package() == []
        assert client.state is TransportState.DISCONNECTED

    def test_idempotent(self) -> None:
        """It may be called at any time, any number of times."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.disconnect()
        with client:
            pass
        client.disconnect()
        client.disconnect()
        assert len(heard) == 1

    def test_ten_threads_at_once(self) -> None:
        """All return, none before the end, and it happens once."""
        client = memory_client()
        heard: list[Any] = []
        client.on("disconnected", heard.append)
        client.connect()
        start = threading.Barrier(10)

        def leave() -> None:
            start.wait(SOON)
            client.disconnect()
            assert client._connector.session().finished.is_set()

        for thread in [InThread(leave) for _ in range(10)]:
            thread.result()
        assert len(heard) == 1
        assert threads_of_package() == []

    def test_on_a_thread_of_the_transports(self) -> None:
        """A transport's own thread may end the session, and a callback of the program's on it may disconnect."""
        client = memory_client()
        client.connect()
        thread = InThread(lambda: (transport_of(client).end(), client.disconnect()))
        thread.result(2.0)
        assert client.state is TransportState.DISCONNECTED

    def test_with_statement(self) -> None:
        """`with client:` connects and disconnects, also when the block raises."""
        client = memory_client()
        with client as same:
            assert same is client
            assert client.state is TransportState.READY
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

    def test_reconnect_right_after_a_remote_end(self) -> None:
        """Invariant "connect() right after waits for the old session": it may be called as soon as the end is known,
        and before."""
        client = memory_client()
        for _ in range(50):
            client.connect()
            ended = client.events("disconnected", timeout=SOON)
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
            seen.append(type(asking[0].error(1.0)))
            seen.append(client.state)
            try:
                client.send_text("late")
            except DisconnectedError:
                seen.append("gated")
            real()

        transport.disconnect = disconnect
        client.on("disconnected", lambda: seen.append(transport._open.is_set()))
        client.connect()
        asking.append(InThread(lambda: client.send_client_request("never")))
        until(lambda: client._connector.session()._pending._waiters)
        client.disconnect()
        assert seen == ["close", DisconnectedError, TransportState.DISCONNECTING, "gated", False]


class TestLimits:
    @pytest.mark.usefixtures("short")
    def test_a_transport_that_hangs(self, caplog: pytest.LogCaptureFixture) -> None:
        """`disconnect()` returns in time, `disconnected` is delivered, the stack of what hangs is logged, and the
        client can connect again."""
        client = memory_client()
        transport = transport_of(client)
        real = transport.disconnect
        release = threading.Event()
        heard: list[Any] = []
        client.on("disconnected", heard.append)

        def hang_here() -> None:
            release.wait(SOON)

        transport.disconnect = hang_here
        client.connect()
        begun = time.monotonic()
        client.disconnect()
        assert time.monotonic() - begun < 0.7
        assert len(heard) == 1
        assert "hang_here" in caplog.text
        assert client.state is TransportState.DISCONNECTED
        transport.disconnect = real
        release.set()
        with client:
            assert client.send_client_request("ping", 1) == 1
        until(lambda: not threads_of_package())

    def test_a_transport_that_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        """Its error is logged; the session ends as any other."""
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
        """At the limit its stack is logged, once, and the events of its session are dropped; those of the next session
        are not."""
        client = memory_client()
        entered, release = threading.Event(), threading.Event()
        heard: list[Any] = []

        def hang_here(data: Any) -> None:
            if data == "hang":
                entered.set()
                release.wait(SOON)
            heard.append(data)

        client.on("server_message", hang_here)
        client.on("disconnected", lambda: heard.append("disconnected"))
        stream = client.events("server_message", timeout=SOON)
        client.connect()
        bot_says(client, "server-message", "hang")
        bot_says(client, "server-message", "dropped")
        assert entered.wait(SOON)
        begun = time.monotonic()
        client.disconnect()
        assert 0.3 < time.monotonic() - begun < 0.7
        logged = [r for r in caplog.records if "hang_here" in r.getMessage()]
        assert len(logged) == 1
        assert logged[0].levelno == logging.WARNING
        client.connect()
        bot_says(client, "server-message", "new")
        release.set()
        client.disconnect()
        assert heard == ["hang", "new", "disconnected"]
        assert [e.data for e in stream] == ["hang"]
        until(lambda: not threads_of_package())

    @pytest.mark.usefixtures("short")
    def test_only_the_busy_handler_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """The handlers of other clients have nothing to do with it."""
        release = threading.Event()
        entered = threading.Event()

        def another_clients_handler() -> None:
            entered.set()
            release.wait(SOON)

        other, client = memory_client(), memory_client()
        other.on("server_message", another_clients_handler)
        with other:
            bot_says(other, "server-message")
            assert entered.wait(SOON)
            with client:
                pass
            assert caplog.records == []
            release.set()

    def test_limits(self) -> None:
        """`disconnect()` promises five seconds."""
        from rtvi_sync import session

        assert session.TEARDOWN_LIMIT == 5.0

    def test_a_slow_disconnected_handler_that_reconnects(self) -> None:
        """A handler that works on the next session is no handler that hangs, and a failed attempt in it neither."""
        client = memory_client(silent_bot, connect_timeout=0.1)
        transport = transport_of(client)
        errors: list[BaseException] = []

        def again() -> None:
            transport._bot = silent_bot
            try:
                client.connect()
            except RTVIError as error:
                errors.append(error)

        client.once("disconnected", again)
        from rtvi_sync.transports.memory import ready_bot

        transport._bot = ready_bot
        client.connect()
        client.disconnect()
        until(lambda: errors)
        until(lambda: not threads_of_package())
        assert client.state is TransportState.ERROR


class TestCollection:
    @pytest.fixture(autouse=True)
    def _nothing_of_earlier_tests(self) -> None:
        gc.collect()

    def drop(self, clients: list[RTVIClient]) -> weakref.ref[RTVIClient]:
        """Drop the only client of the list, collect it, and return a reference that is dead then."""
        gone = weakref.ref(clients[0])
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            clients.clear()
            gc.collect()
        (warning,) = [w for w in told if w.category is ResourceWarning]
        assert "disconnect()" in str(warning.message)
        return gone

    def test_dropped_while_connected(self) -> None:
        """Invariant "nothing holds the client": one that is dropped while connected is collected, warns, and is torn
        down: transport closed, threads gone."""
        clients = [memory_client()]
        clients[0].connect()
        transport = transport_of(clients[0])
        assert self.drop(clients)() is None
        until(lambda: not threads_of_package())
        assert not transport._open.is_set()

    def test_dropped_with_handlers_that_know_it(self) -> None:
        """Handlers, callbacks and signals that close over the client do not keep it."""

        def build() -> RTVIClient:
            client = memory_client(callbacks={"on_bot_ready": lambda: client.version})
            client.on("server_message", lambda: client.send_text("x"))
            client.once("metrics", client.disconnect)
            stream = client.events("server_message")
            client.note = stream  # type: ignore[attr-defined]
            client.connect()
            return client

        clients = [build()]
        assert self.drop(clients)() is None
        until(lambda: not threads_of_package())

    def test_dropped_over_websocket(self) -> None:
        """With a real connection the server sees it end, and no descriptor is left."""
        with EmbeddedBot() as bot:
            clients = [websocket_client(bot)]
            clients[0].connect()
            session = bot.wait_for_session()
            assert self.drop(clients)() is None
            session.wait_ended(SOON)
            until(lambda: not own_threads())

    def test_dropped_after_a_failed_attempt(self) -> None:
        """An attempt that has failed is no session: nothing to warn of, and the exception does not keep the client."""
        client = memory_client(silent_bot, connect_timeout=0.05)
        with pytest.raises(TimeoutError):
            client.connect()
        gone = weakref.ref(client)
        del client
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gc.collect()
        assert gone() is None

    def test_dropped_after_disconnect(self) -> None:
        """A client that was disconnected goes silently, at once and without the collector's help."""
        gc.disable()
        try:
            client = memory_client()
            with client:
                pass
            gone = weakref.ref(client)
            del client
            assert gone() is None
        finally:
            gc.enable()

    def test_dropped_while_an_abandoned_handler_hangs(self) -> None:
        """The custom handler of an attempt that was given up keeps the client until it returns, and no longer."""
        release = threading.Event()

        def handler(*_: Any) -> None:
            release.wait(SOON)

        clients = [memory_client(custom_connect_handler=handler, connect_timeout=0.1)]
        with pytest.raises(TimeoutError):
            clients[0].connect()
        gone = weakref.ref(clients.pop())
        release.set()
        until(lambda: not threads_of_package())
        gc.collect()
        assert gone() is None

    def test_dropped_in_manual_mode(self) -> None:
        """Events that nobody will process do not keep the client."""
        clients = [memory_client(events="manual")]
        clients[0].on("server_message", lambda: None)
        clients[0].connect()
        bot_says(clients[0], "server-message", 1)
        assert self.drop(clients)() is None
        until(lambda: not threads_of_package())


class TestNothingIsLeft:
    @pytest.fixture(autouse=True)
    def _impatient_workers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Idle lane workers leave sooner than after five seconds."""
        monkeypatch.setattr("rtvi_sync.concurrency.lanes.IDLE_TIMEOUT", 0.2)

    def test_fifty_sessions(self) -> None:
        """50 sessions on one client: not one thread or descriptor more right after each `disconnect()`."""
        client = memory_client()
        client.on("disconnected", lambda: None)
        client.on("bot_ready", lambda: None)
        with client:
            pass
        before = descriptors()
        for _ in range(50):
            client.connect()
            assert client.send_client_request("ping", 1) == 1
            client.disconnect()
            assert threads_of_package() == []
            assert descriptors() == before

    def test_fifty_sessions_over_websocket(self) -> None:
        """The same with HTTP, WebSocket and audio."""
        with EmbeddedBot() as bot:
            client = RTVIClient(
                transport=WebSocketTransport(),
                params={"base_url": bot.base_url},
                mic=SilenceSource(),
                speaker=NullSink(),
                connect_timeout=SOON,
            )
            with client:
                pass
            until(lambda: not bot.sessions)
            before = descriptors()
            for _ in range(50):
                client.connect()
                assert client.send_client_request("ping", 1) == 1
                client.disconnect()
                assert own_threads() == []
                until(lambda: not bot.sessions)
                until(lambda: descriptors() <= before)

    def test_a_hundred_clients(self) -> None:
        """Invariant "few threads, many sessions": 100 connected clients need O(1) threads; afterwards none is left."""
        clients = [memory_client() for _ in range(100)]
        before = descriptors()
        connecting = [InThread(client.connect) for client in clients]
        for thread in connecting:
            thread.result()
        heard: list[int] = []
        for number, client in enumerate(clients):
            client.on("server_message", lambda n=number: heard.append(n))
        until(lambda: not [n for n in threads_of_package() if "-connect-" in n])
        for client in clients:
            bot_says(client, "server-message", 1)
            assert client.send_client_request("ping", 1) == 1
        until(lambda: len(heard) == 100)
        # Workers that were busy with the connects are idle now and go after a while.
        until(lambda: len(threads_of_package()) <= 5, timeout=30)
        leaving = [InThread(client.disconnect) for client in clients]
        for thread in leaving:
            thread.result()
        assert threads_of_package() == []
        assert descriptors() == before

    def test_a_hundred_clients_over_websocket(self) -> None:
        """The same over real connections with running audio sources."""
        with EmbeddedBot() as bot:
            clients = [websocket_client(bot, connect_timeout=30) for _ in range(100)]
            for thread in [InThread(client.connect) for client in clients]:
                thread.result(40)
            for client in clients:
                assert client.send_client_request("ping", 1) == 1
            until(lambda: len(own_threads()) <= 5, timeout=30)
            for thread in [InThread(client.disconnect) for client in clients]:
                thread.result(20)
            assert own_threads() == []

    def test_the_hub_is_shared_and_goes_with_the_last(self) -> None:
        """Invariant "hub": all sessions share one io thread; the last to end retires it, the next makes a new one."""
        first, second = memory_client(), memory_client()
        first.connect()
        second.connect()
        hub = first._connector.session().hub
        assert second._connector.session().hub is hub
        first.disconnect()
        assert hub.io.thread.is_alive()
        assert second.send_client_request("ping", 1) == 1
        second.disconnect()
        assert not hub.io.thread.is_alive()
        with first:
            assert first._connector.session().hub is not hub

    def test_sessions_that_come_and_go_at_once(self) -> None:
        """Invariant "the last release retires the hub": clients that connect while others leave never meet a hub on
        its way out."""
        stop = threading.Event()

        def work() -> int:
            client = memory_client()
            client.on("disconnected", lambda: None)
            count = 0
            while not stop.is_set():
                with client:
                    assert client.send_client_request("ping", count) == count
                count += 1
            return count

        threads = [InThread(work) for _ in range(6)]
        threading.Event().wait(1.5)
        stop.set()
        assert all(thread.result() > 3 for thread in threads)
        assert threads_of_package() == []

    def test_quiet_clients_need_no_worker(self) -> None:
        """A client without events holds no lane worker."""
        hub = acquire_hub()
        try:
            with memory_client():
                assert lanes_of_package() == []
        finally:
            if hub.release():
                from rtvi_sync.concurrency.deadline import Deadline

                hub.join(Deadline(1.0))


class TestPoliteClose:
    def test_the_bot_sees_a_normal_close(self) -> None:
        """`disconnect()` says goodbye: the server sees close code 1000, and what was sent before arrives."""
        received: list[Any] = []

        def serve(link: ServerConnection) -> None:
            for data in link:
                assert isinstance(data, bytes)
                frame = frames.decode(data)
                if isinstance(frame, frames.MessageFrame):
                    message = json.loads(frame.data)
                    if message["type"] == "client-ready":
                        ready = {**message, "type": "bot-ready", "data": {"version": "2.2.0"}}
                        link.send(frames.encode(frames.MessageFrame(data=json.dumps(ready))))
                    else:
                        received.append(message["data"]["d"])
            received.append((link.close_code, link.close_reason))

        with websocket_server(serve, "127.0.0.1", 0) as server:
            serving = InThread(server.serve_forever)
            client = RTVIClient(
                transport=WebSocketTransport(f"ws://127.0.0.1:{server.socket.getsockname()[1]}"),
                mic=SilenceSource(),
                speaker=NullSink(),
                connect_timeout=SOON,
            )
            for _ in range(10):
                received.clear()
                client.connect()
                for n in range(20):
                    client.send_client_message("note", n)
                client.disconnect()
                until(lambda: len(received) == 21)
                assert received == [*range(20), (1000, "")]
            server.shutdown()
            serving.result()

    def test_a_close_handshake_is_waited_for(self) -> None:
        """Invariant "polite close with a limit": a live session is not cut off but closed, so `disconnected` carries
        the code that the server answered with."""
        with EmbeddedBot() as bot:
            client = websocket_client(bot)
            client.connect()
            transport = transport_of(client)
            connection = transport._connection
            client.disconnect()
            assert connection.info.code == 1000


@pytest.fixture(autouse=True)
def _no_threads_before() -> None:
    until(lambda: not threads_of_package())
