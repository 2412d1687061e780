"""Many sessions, one after the other and at once: no thread and no descriptor stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rtvi_sync import (
    RTVIClient,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support import limits
from tests.support.clients import bot_says, memory_client, websocket_client
from tests.support.slowness import GUARD
from tests.support.threads import (
    InThread,
    count_descriptors,
    end_idle_threads,
    own_threads,
    reads,
    thread_names,
    workers_of_package,
)
from tests.support.waiting import until


def hubs() -> list[threading.Thread]:
    """Return the threads that read the network."""
    return [thread for thread in threading.enumerate() if reads(thread)]


class TestNothingIsLeft:
    @pytest.fixture(autouse=True)
    def _impatient_workers(self) -> Iterator[None]:
        """Let idle queue workers end within less than five seconds."""
        with limits.changed(idle_worker=0.2):
            yield

    def test_fifty_sessions(self) -> None:
        """50 sessions on one client: not one thread or descriptor more right after each `disconnect()`."""
        client = memory_client()
        client.on("disconnected", lambda: None)
        client.on("bot_ready", lambda: None)
        with client:
            pass
        before = count_descriptors()
        for _ in range(50):
            client.connect()
            assert client.send_client_request("ping", 1) == 1
            client.disconnect()
            assert thread_names() == []
            assert count_descriptors() == before

    def test_fifty_sessions_over_websocket(self) -> None:
        """Fifty sessions with HTTP, WebSocket and audio leave no thread and no descriptor."""
        with EmbeddedBot() as bot:
            client = RTVIClient(
                transport=WebSocketTransport(),
                params={"base_url": bot.base_url},
                mic=SilenceSource(),
                speaker=NullSink(),
                connect_timeout=GUARD,
            )
            with client:
                pass
            until(lambda: not bot.sessions)
            before = count_descriptors()
            for _ in range(50):
                client.connect()
                assert client.send_client_request("ping", 1) == 1
                client.disconnect()
                assert own_threads() == []
                until(lambda: not bot.sessions)
                until(lambda: count_descriptors() <= before)

    def test_a_hundred_clients(self) -> None:
        """Invariant "few threads, many sessions": 100 connected clients need O(1) threads; afterwards none is left."""
        clients = [memory_client() for _ in range(100)]
        before = count_descriptors()
        connecting = [InThread(client.connect) for client in clients]
        for thread in connecting:
            thread.get()
        heard: list[int] = []
        for number, client in enumerate(clients):
            client.on("server_message", lambda n=number: heard.append(n))
        until(lambda: not [n for n in thread_names() if "-connect-" in n])
        for client in clients:
            bot_says(client, "server-message", 1)
            assert client.send_client_request("ping", 1) == 1
        until(lambda: len(heard) == 100)
        # Workers that were busy with the connects are idle now and go after a while.
        until(lambda: len(thread_names()) <= 5)
        leaving = [InThread(client.disconnect) for client in clients]
        for thread in leaving:
            thread.get()
        assert thread_names() == []
        assert count_descriptors() == before

    def test_a_hundred_clients_over_websocket(self) -> None:
        """A hundred clients with real connections and audio need at most five threads, and leave none."""
        with EmbeddedBot() as bot:
            clients = [websocket_client(bot, connect_timeout=GUARD) for _ in range(100)]
            for thread in [InThread(client.connect) for client in clients]:
                thread.get()
            for client in clients:
                assert client.send_client_request("ping", 1) == 1
            until(lambda: len(own_threads()) <= 5)
            for thread in [InThread(client.disconnect) for client in clients]:
                thread.get()
            assert own_threads() == []

    def test_the_hub_is_shared_and_stays_for_a_while(self) -> None:
        """Invariant "runtime": all sessions share one io thread, which lives as long as a session does, and a few
        seconds more for the next one.
        """
        first, second = memory_client(), memory_client()
        first.connect()
        second.connect()
        (hub,) = hubs()
        first.disconnect()
        assert hubs() == [hub]
        assert second.send_client_request("ping", 1) == 1
        second.disconnect()
        with first:
            assert hubs() == [hub]
        end_idle_threads()
        assert not hub.is_alive()
        with first:
            (other,) = hubs()
            assert other is not hub

    def test_sessions_that_come_and_go_at_once(self) -> None:
        """Invariant "the last release retires the runtime": clients that connect while others leave never meet a
        runtime on its way out."""
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
        assert all(thread.get() > 3 for thread in threads)
        assert thread_names() == []

    def test_a_session_without_media_starts_no_timer_thread(self) -> None:
        """A transport without audio and video has no device for the timer thread to watch."""
        end_idle_threads()
        with memory_client() as client:
            assert client.send_client_request("ping", 1) == 1
            assert not [name for name in own_threads() if name.startswith("rtvi-timer-")]

    def test_a_session_without_devices_starts_no_timer_thread(self) -> None:
        """A session of text alone, over a transport that could carry audio."""
        end_idle_threads()
        with EmbeddedBot() as bot, websocket_client(bot, mic=None, enable_mic=False) as client:
            assert client.send_client_request("ping", 1) == 1
            assert not [name for name in own_threads() if name.startswith("rtvi-timer-")]

    def test_quiet_clients_need_no_worker(self) -> None:
        """A client without events holds no queue worker."""
        with memory_client():
            assert workers_of_package() == []
