"""`client.stats()`: its counts, their session, and its use at any time."""

from __future__ import annotations

from rtvi_sync import ClientStats, MemoryTransport, RTVIClient
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import memory_client, websocket_client
from tests.support.forking import in_child
from tests.support.threads import InThread
from tests.support.waiting import until


def test_it_may_always_be_asked() -> None:
    """Without a transport, before the first session and after close() there is nothing to count, and no error."""
    assert RTVIClient().stats() == ClientStats()
    client = RTVIClient(transport=MemoryTransport())
    assert client.stats() == ClientStats()
    client.close()
    assert client.stats() == ClientStats()


def test_a_session_is_counted_and_the_next_begins_at_zero() -> None:
    """Messages and bytes count one session, sessions count the client's life; all stay until the next session
    starts.
    """
    with EmbeddedBot() as bot, websocket_client(bot, enable_mic=False) as client:
        begun = client.stats()
        for number in range(3):
            client.send_client_request("echo", number)
        one = client.stats()
        assert (one.messages_sent, one.messages_received - begun.messages_received) == (3, 3)
        assert one.bytes_sent > begun.bytes_sent > 0
        assert one.bytes_received > begun.bytes_received > 0
        client.disconnect()
        last = client.stats()
        assert (last.sessions, last.messages_sent) == (1, 3)
        assert last.bytes_sent >= one.bytes_sent
        client.connect()
        two = client.stats()
        assert (two.sessions, two.messages_sent, two.messages_received) == (2, 0, begun.messages_received)
        assert two.bytes_sent < last.bytes_sent


def test_what_threads_send_is_counted_together() -> None:
    """None of the messages that several threads send at once is missed."""
    client = memory_client()

    def send() -> None:
        for _ in range(200):
            client.send_text("x")

    with client:
        threads = [InThread(send) for _ in range(5)]
        for thread in threads:
            thread.get()
        assert client.stats().messages_sent == 1000


def test_audio_is_counted_in_seconds() -> None:
    """Audio that was sent counts by how long it lasts, whatever its bytes; none was dropped."""
    with EmbeddedBot() as bot, websocket_client(bot) as client:
        until(lambda: client.stats().audio_sent >= 0.1)
        assert client.stats().audio_sent < 60
        assert client.stats().audio_unsent == 0


def test_a_forked_child_sees_the_parents_counts() -> None:
    """A forked child sees the parent's counts at the time of the fork, and stats() does not block."""
    client = memory_client()
    with client:
        client.send_text("x")
        assert in_child(lambda: client.stats().messages_sent) == 1
