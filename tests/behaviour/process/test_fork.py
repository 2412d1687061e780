"""A process that forks: sessions that were live are the parent's, everything else works in the child."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    ForkedProcessError,
    MemoryTransport,
    RTVIClient,
    RTVIMessage,
    TransportState,
)
from rtvi_sync.media import NullSink, SilenceSource, ToneSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, memory_client, silent_bot, websocket_client
from tests.support.forking import in_child
from tests.support.probes import LOCKS, collect_without_collector
from tests.support.slowness import GUARD, takes
from tests.support.threads import InThread, holding
from tests.support.waiting import until

# Python warns of forks with threads, which these tests need.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


class ClosedSource(SilenceSource):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1
        super().close()


def refused(call: Callable[[], Any]) -> None:
    """Check that `call()` raises `ForkedProcessError` at once, with advice."""
    with takes(0.1), pytest.raises(ForkedProcessError, match="child process"):
        call()


class TestLiveSession:
    def test_calls_that_need_it(self) -> None:
        """Invariant "live sessions are dead in the child": every call that needs the session says so at once."""
        with EmbeddedBot() as bot, websocket_client(bot) as client:
            stream = client.events("server_message")

            def child() -> None:
                for call in (
                    lambda: client.send_message(RTVIMessage("x")),
                    lambda: client.send_client_message("x"),
                    lambda: client.send_client_request("x"),
                    lambda: client.send_text("x"),
                    client.disconnect_bot,
                    client.connect,
                    lambda: client.start_bot("http://127.0.0.1:1/"),
                    lambda: client.wait_for("server_message"),
                    lambda: client.events(),
                    lambda: next(stream),
                ):
                    refused(call)

            in_child(child)
            assert client.send_client_request("ping", 1) == 1

    def test_process_events_in_the_child(self) -> None:
        """In the child of a live session, process_events() raises `ForkedProcessError`."""
        with memory_client(events="manual") as client:
            in_child(lambda: refused(client.process_events))

    def test_what_never_raises(self) -> None:
        """`state`, `disconnect()`, `close()` and the end of a `with` block never raise, and return at once."""
        with EmbeddedBot() as bot, websocket_client(bot) as client:

            def child() -> None:
                with takes(0.5):
                    assert client.state is TransportState.DISCONNECTED
                    assert client.connected is False
                    client.disconnect()
                    client.__exit__(None, None, None)
                    client.enable_mic(False)
                    assert client.is_mic_enabled is False
                    assert client.tracks().local.audio is None
                    client.on("server_message", lambda: None)
                    assert "RTVIClient" in repr(client)
                    client.close()

            in_child(child)
            assert client.state is TransportState.READY

    def test_the_parent_goes_on(self) -> None:
        """Invariant "parent unharmed": nothing that children do with the client disturbs the parent's session."""
        tone = ToneSource(440, duration=1.0, sample_rate_hz=16000)
        with EmbeddedBot() as bot, websocket_client(bot, mic=tone) as client:
            session = bot.wait_for_session()

            def child() -> None:
                client.disconnect()
                client.close()
                collect_without_collector(client)

            for n in range(5):
                in_child(child)
                assert client.send_client_request("ping", n) == n
            assert tone.wait(GUARD)
            assert session.ended is None
        session.wait_ended(GUARD)

    def test_a_child_that_exits_normally(self) -> None:
        """A child that runs its exit hooks does not end the parent's session."""
        with EmbeddedBot() as bot, websocket_client(bot) as client:
            pid = os.fork()
            if pid == 0:
                import atexit

                atexit._run_exitfuncs()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            assert status == 0
            assert client.send_client_request("ping", 1) == 1

    def test_the_parents_end_is_seen(self) -> None:
        """A child that lives on does not keep the parent's connection open."""
        with EmbeddedBot() as bot:
            client = websocket_client(bot)
            client.connect()
            session = bot.wait_for_session()
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            os.close(reader)
            try:
                client.disconnect()
                session.wait_ended(GUARD)
            finally:
                os.close(writer)
                os.waitpid(pid, 0)

    def test_other_clients_in_the_child(self) -> None:
        """A new client, or one that was not connected, works in the child of a process with a live session."""
        with EmbeddedBot() as bot:
            idle = websocket_client(bot)
            with websocket_client(bot) as client:

                def child() -> None:
                    for other in (idle, websocket_client(bot)):
                        with other:
                            assert other.send_client_request("ping", 5) == 5
                    refused(client.connect)

                in_child(child)
                assert client.send_client_request("ping", 1) == 1
            with idle:
                assert idle.send_client_request("ping", 2) == 2

    def test_a_fork_while_the_client_connects(self) -> None:
        """A session that is still being connected belongs to the parent, too."""
        client = memory_client(silent_bot)
        connecting = InThread(client.connect)
        until(lambda: client.state is TransportState.CONNECTED)

        def child() -> None:
            refused(client.connect)
            client.disconnect()

        in_child(child)
        client.disconnect()
        connecting.error()


class TestUnconnectedClient:
    def test_a_fork_as_connect_begins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The call in the parent had no session yet, so the child may connect."""
        in_child(lambda: None)  # no thread is idle from now on
        start, begins, goes_on = threading.Thread.start, threading.Event(), threading.Event()

        def start_slowly(thread: threading.Thread) -> None:
            if thread.name.startswith("rtvi-worker"):
                begins.set()
                goes_on.wait(GUARD)
            start(thread)

        client = memory_client()
        monkeypatch.setattr(threading.Thread, "start", start_slowly)
        connecting = InThread(client.connect)
        assert begins.wait(GUARD)
        monkeypatch.undo()

        def child() -> None:
            with client:
                assert client.send_client_request("ping", 1) == 1

        in_child(child)
        goes_on.set()
        connecting.get()
        client.disconnect()

    def test_it_works_in_the_child(self) -> None:
        """A client that was not connected at the fork works there, with its handlers, and in the parent too."""
        client = memory_client()
        heard: list[Any] = []
        client.on("server_message", heard.append)

        def child() -> None:
            with client:
                bot_says(client, "server-message", 1)
                assert client.send_client_request("ping", 1) == 1
            assert heard == [1]

        in_child(child)
        assert heard == []
        with client:
            bot_says(client, "server-message", 2)
        assert heard == [2]

    def test_after_a_session(self) -> None:
        """A client whose session ended before the fork works in the child, and so does one whose attempt failed."""
        client = memory_client()
        with client:
            pass
        failed = memory_client(silent_bot, connect_timeout=0.05)
        with pytest.raises(TimeoutError):
            failed.connect()

        def connect_again() -> None:
            client.disconnect()
            client.connect()
            client.disconnect()

        in_child(connect_again)

        def child() -> None:
            with pytest.raises(TimeoutError):
                failed.connect()

        in_child(child)

    def test_its_devices_after_a_session(self) -> None:
        """The child may open and close the devices of a client whose session has ended in the parent."""
        source = ClosedSource()
        client = RTVIClient(transport=MemoryTransport(audio=True), mic=source, speaker=NullSink())
        with client:
            pass
        assert source.closed == 1

        def child() -> None:
            client.init_devices()
            assert client.media_state.mic.state == "granted"
            client.disconnect()
            assert source.closed == 2

        in_child(child)

    def test_its_streams(self) -> None:
        """A stream that was opened before the fork is served in the child."""
        client = memory_client()
        stream = client.events("server_message", timeout=GUARD)

        def child() -> None:
            with client:
                bot_says(client, "server-message", 1)
                assert next(stream).data == 1
            assert list(stream) == []

        in_child(child)
        stream.close()

    def test_grandchildren(self) -> None:
        """A child can fork children, for which the same rules hold."""
        client = memory_client()

        def grandchild() -> None:
            refused(lambda: client.send_text("x"))
            with memory_client() as own:
                assert own.send_client_request("ping", 1) == 1

        def child() -> None:
            with client:
                in_child(grandchild)
                assert client.send_client_request("ping", 1) == 1

        in_child(child)


class TestLocks:
    """Invariant "the pid check comes before any lock": a lock that another thread holds at the fork blocks no call."""

    @pytest.mark.parametrize("lock", ["manager", "queue"])
    def test_of_an_unconnected_client(self, lock: str) -> None:
        """A client that was not connected works in the child."""
        client = memory_client()
        client._note = client.events("server_message", timeout=GUARD)  # type: ignore[attr-defined]
        client.on("server_message", lambda: None)

        def child() -> None:
            client.on("bot_ready", lambda: None)
            with client:
                bot_says(client, "server-message", 1)
                assert next(client._note).data == 1  # type: ignore[attr-defined]
                assert client.send_client_request("ping", 1) == 1

        with holding(LOCKS[lock](client)):
            in_child(child)

    @pytest.mark.parametrize("lock", LOCKS)
    def test_of_a_live_session(self, lock: str) -> None:
        """Calls are refused, `disconnect()` returns, the client can be collected, and other clients work."""
        with EmbeddedBot() as bot, websocket_client(bot) as client:

            def child() -> None:
                refused(lambda: client.send_text("x"))
                refused(lambda: client.wait_for("bot_ready"))
                refused(client.connect)
                client.disconnect()
                assert client.state is TransportState.DISCONNECTED
                client.enable_mic(False)
                collect_without_collector(client)
                with websocket_client(bot) as other:
                    assert other.send_client_request("ping", 1) == 1

            with holding(LOCKS[lock](client)):
                in_child(child)
            assert client.send_client_request("ping", 1) == 1
