"""A side that is too slow: memory stays bounded, only audio is dropped, and that is counted."""

from __future__ import annotations

import logging
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DisconnectedError,
    EvalTransport,
    MessageTooLargeError,
    RTVIClient,
    RTVIError,
    RTVIMessage,
    WebSocketTransport,
)
from rtvi_sync.media import AudioDroppedData, BytesSource, CallbackSink
from tests.support.clients import session_of, transport_of
from tests.support.selection import some_of
from tests.support.slowness import GUARD
from tests.support.waiting import until

from .conftest import BotProcess, client_of

# Over the eval route, which shares the socket's code, with the matrix; test_sinks.py takes both each time.
pytestmark = pytest.mark.parametrize(
    "bot", some_of([WebSocketTransport, EvalTransport], WebSocketTransport), ids=["websocket", "eval"], indirect=True
)

MB = 1024 * 1024


class Peak:
    """Measures the peak memory of Python objects while the block runs, beyond the memory in use before."""

    bytes = 0

    def __enter__(self) -> Peak:
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def ending_of(client: RTVIClient) -> Callable[[], CloseInfo]:
    """Return a function that waits for the end of the session and returns how it ended."""
    ended: list[CloseInfo] = []
    client.on("disconnected", ended.append)

    def wait() -> CloseInfo:
        until(lambda: ended)
        return ended[0]

    return wait


# -- the server sends faster than the program takes -------------------------------------------------------------------


def test_a_flood_arrives_whole(bot: BotProcess) -> None:
    """10,000 messages in one burst: each one arrives, in order, at a handler that keeps up on the whole."""
    seen: list[int] = []
    done = threading.Event()

    def take(data: Any) -> None:
        seen.append(data["n"])
        if len(seen) == 10_000:
            done.set()

    with client_of(bot) as client:
        client.on("server_message", take)
        client.send_client_message("flood", {"count": 10_000, "size": 10})
        assert done.wait(GUARD)
        stats = client.stats()
    assert seen == list(range(10_000))
    assert stats.messages_received >= 10_000
    assert stats.bytes_received > 10_000 * 50


def test_a_flood_that_nobody_listens_to_costs_nothing(bot: BotProcess) -> None:
    """Events without a listener are not kept: 10,000 messages, 2 MB on the wire, take less than half a MB."""
    with client_of(bot) as client, Peak() as peak:
        client.send_client_message("flood", {"count": 10_000, "size": 200})
        client.send_client_request("after", timeout=GUARD)
        received = client.stats().messages_received
    assert received >= 10_000
    assert peak.bytes < MB / 2


def test_a_handler_that_hangs(bot: BotProcess) -> None:
    """A handler's queue is bounded by bytes: over the limit the session ends with an error, and memory stays low."""
    release = threading.Event()
    client = client_of(bot, max_queued_bytes=4 * MB)
    ended = ending_of(client)
    client.on("server_message", lambda: release.wait(GUARD) and None)
    most = 0
    with Peak() as peak:
        client.connect()
        session = session_of(client)
        client.send_client_message("flood", {"count": 20_000, "size": 1000})
        while not session.is_ending:
            most = max(most, client.stats().event_bytes_queued)
        release.set()
        client.disconnect()
    info = ended()
    assert isinstance(info.error, RTVIError)
    assert "max_queued_bytes" in str(info.error)
    assert 2 * MB < most <= 4 * MB
    # The received text, and the parsed message.
    assert peak.bytes < 2.5 * 4 * MB


def test_a_handler_that_is_slow_holds_up_nothing_else(bot: BotProcess) -> None:
    """While a handler blocks and thousands of events wait for it, requests are answered."""
    release = threading.Event()
    with client_of(bot) as client:
        client.on("server_message", lambda: release.wait(GUARD) and None)
        client.send_client_message("flood", {"count": 5000, "size": 10})
        assert client.send_client_request("echo", 42, timeout=GUARD) == 42
        assert client.stats().events_queued > 4000
        release.set()


def test_a_slow_sink(bot: BotProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A sink that accepts nothing: audio waits up to the limit in bytes, then the oldest is dropped, counted and
    reported.
    """
    release = threading.Event()
    taken: list[int] = []

    def write(pcm: bytes, _: int) -> None:
        release.wait(GUARD)
        taken.append(len(pcm))

    sink = CallbackSink(write)
    client = client_of(bot, speaker=sink, max_queued_audio_bytes=10 * 3456)
    client.connect()
    with Peak() as peak, client.events("audio_dropped", timeout=GUARD) as losses:
        client.send_client_message("speak", {"seconds": 600})
        assert client.send_client_request("after", timeout=GUARD) is None
        stats = client.stats()
        loss = next(losses)
    assert stats.audio_received == pytest.approx(600)
    # One frame is being written, 10 wait.
    assert stats.speaker_dropped_seconds == pytest.approx(598.9)
    a_tenth: Any = pytest.approx(0.1)
    assert loss.data == AudioDroppedData(seconds=a_tenth, sink=sink)
    assert peak.bytes < MB  # of 19
    release.set()
    with caplog.at_level(logging.WARNING):
        client.disconnect()
    assert len(taken) == 11
    assert "598.90 s of the bot's audio were dropped in this session" in caplog.text
    assert client.stats().speaker_dropped_seconds == pytest.approx(598.9)  # the last session's, until the next starts


def test_what_waits_for_a_sink_is_bounded(bot: BotProcess) -> None:
    """Of audio that a sink does not take 16 MiB are kept, which is minutes."""
    release = threading.Event()
    client = client_of(bot, speaker=CallbackSink(lambda pcm, rate: release.wait(GUARD)))
    client.connect()
    with Peak() as peak:
        client.send_client_message("speak", {"seconds": 900})
        assert client.send_client_request("after", timeout=GUARD) is None
        stats = client.stats()
    assert 400 < stats.speaker_dropped_seconds < 450
    assert 14 * MB < peak.bytes < 18 * MB
    release.set()
    client.disconnect()


def test_the_largest_message(bot: BotProcess) -> None:
    """16 MiB are taken, in memory that is a few times that; one byte more ends the session with 1009."""
    with client_of(bot) as client:
        with Peak() as peak, client.events("server_message", timeout=GUARD) as events:
            client.send_client_message("large", {"bytes": 16 * MB})
            assert len(next(events).data) > 16 * MB - 200
        assert peak.bytes < 4 * 16 * MB
        ended = ending_of(client)
        client.send_client_message("large", {"bytes": 16 * MB + 1})
        info = ended()
    assert info.code == 1009
    assert "max_inbound_message_size" in str(info.error)


# -- the server takes less than the program sends ---------------------------------------------------------------------


def test_a_frozen_server_and_audio(bot: BotProcess) -> None:
    """Over a second of audio that does not leave the oldest is dropped and counted; messages are kept and arrive."""
    client = client_of(bot, transport={"stall_timeout": GUARD, "ping_timeout": GUARD})
    second = bytes(2 * 16_000)
    with client:
        transport = transport_of(client)
        bot.freeze()
        with Peak() as peak:
            for n in range(1000):
                transport.send_audio(second, 16_000)
                if n % 100 == 50:
                    client.send_client_message("flood", {"count": 1, "size": n})
            until(lambda: client.stats().audio_sent + client.stats().audio_unsent > 995)
            stats = client.stats()
        assert stats.audio_unsent > 700  # the system takes 6 MB at most, which are 190 s
        assert stats.bytes_waiting < MB
        assert peak.bytes < MB  # of 32
        with client.events("server_message", timeout=GUARD) as events:
            bot.thaw()
            assert [len(next(events).data["filler"]) for _ in range(10)] == list(range(50, 1000, 100))


def test_a_frozen_server_and_messages(bot: BotProcess) -> None:
    """Messages are never dropped: more than may wait ends the session with an error, at the sender and in the event."""
    client = client_of(bot, transport={"stall_timeout": GUARD, "ping_timeout": GUARD})
    ended = ending_of(client)
    client.connect()
    bot.freeze()

    def send_too_much() -> None:
        for _ in range(1000):
            client.send_client_message("lost", "x" * 100_000)

    with Peak() as peak, pytest.raises(RTVIError):
        send_too_much()
    info = ended()
    assert info.initiator == "network"
    assert "does not read fast enough" in str(info.error)
    assert peak.bytes < 20 * MB  # 16 may wait


def test_a_frozen_server_is_found_dead(bot: BotProcess) -> None:
    """A server that reads nothing while data waits counts as dead after `stall_timeout`."""
    client = client_of(bot, transport={"stall_timeout": 0.3})
    ended = ending_of(client)
    client.connect()
    bot.freeze()
    with pytest.raises(DisconnectedError):
        client.send_client_request("lost", "x" * 1_000_000, timeout=GUARD)
    assert "has read nothing" in str(ended().error) or client.stats().bytes_waiting == 0


def test_a_frozen_server_that_nobody_talks_to(bot: BotProcess) -> None:
    """A server that freezes while nothing is sent is found by a ping, and a call that waits for an event raises."""
    client = client_of(bot, transport={"ping_interval": 0.1, "ping_timeout": 0.2})
    client.connect()
    bot.freeze()
    with pytest.raises(DisconnectedError, match="has not answered a ping"):
        client.wait_for("server_message", timeout=GUARD)
    client.disconnect()


def test_large_messages_of_ours(bot: BotProcess) -> None:
    """Over the limit a message is refused before a byte is sent; under a limit of 16 MiB it is carried."""
    with client_of(bot) as client:
        with pytest.raises(MessageTooLargeError):
            client.send_message(RTVIMessage("client-message", {"t": "echo", "d": "x" * 1_048_576}))
        assert client.send_client_request("echo", 1) == 1
    with client_of(bot, transport={"max_message_size": 16 * MB}) as client, Peak() as peak:
        text = "x" * (15 * MB)
        assert client.send_client_request("echo", text, timeout=GUARD) == text
    # JSON, protobuf, mask and frame, and the answer. (orjson reserves eight bytes for each byte of text and touches
    # only the bytes it needs; the rest is not real memory yet.)
    assert peak.bytes < 11 * 16 * MB


def test_a_source_is_not_held_up(bot: BotProcess) -> None:
    """A source keeps its pace against a frozen server: its audio is dropped, not delayed."""
    source = BytesSource(bytes(2 * 8000), 8000)  # 1 s
    client = client_of(bot, mic=source, enable_mic=True, transport={"stall_timeout": GUARD})
    with client:
        bot.freeze()
        assert source.wait(GUARD)
        bot.thaw()
