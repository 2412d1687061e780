"""The limits of events that arrive faster than they are handled."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from rtvi_sync import RTVIClient, RTVIClientOptions, RTVIError, TransportState
from tests.support.clients import bot_says, deaf_bot, memory_client, transport_of
from tests.support.probes import session_has_ended
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.waiting import until


def blocked_client(**options: Any) -> tuple[RTVIClient, threading.Event, list[Any]]:
    """Return a client whose first handler blocks until the event is set, and a list of `disconnected`'s payloads."""
    release, entered = threading.Event(), threading.Event()
    ended: list[Any] = []
    client = memory_client(**options)

    def block() -> None:
        entered.set()
        release.wait(GUARD)

    client.once("bot_llm_started", block)
    client.on("disconnected", ended.append)
    client.connect()
    bot_says(client, "bot-llm-started")
    assert entered.wait(GUARD)
    return client, release, ended


def overflowed(client: RTVIClient, release: threading.Event, ended: list[Any]) -> None:
    """Check that the session has ended with an error, and that `disconnected` was delivered in spite of the full
    queue.
    """
    until(lambda: session_has_ended(client))
    release.set()
    client.disconnect()
    assert client.state is TransportState.DISCONNECTED
    assert len(ended) == 1
    assert ended[0].initiator == "client"
    assert isinstance(ended[0].error, RTVIError)
    assert "max_queued_events" in str(ended[0].error)


def test_by_count() -> None:
    """One event more than the queue takes ends the session with an error; `disconnected` is still delivered."""
    client, release, ended = blocked_client(max_queued_events=50)
    heard: list[Any] = []
    client.on("server_message", heard.append)
    for n in range(50):
        bot_says(client, "server-message", n)
    assert client.state is TransportState.READY
    bot_says(client, "server-message", 50)
    overflowed(client, release, ended)
    assert heard == list(range(50))


def test_by_bytes() -> None:
    """The bytes of queued events are limited too."""
    client, release, ended = blocked_client(max_queued_bytes=100_000)
    heard: list[Any] = []
    client.on("server_message", heard.append)
    text = json.dumps({"label": "rtvi-ai", "type": "server-message", "data": "x" * 30_000})
    for _ in range(3):
        transport_of(client).receive(text)
    assert client.state is TransportState.READY
    transport_of(client).receive(text)
    overflowed(client, release, ended)
    assert len(heard) == 3


@pytest.mark.parametrize("limit", [{"max_queued_events": 50}, {"max_queued_bytes": 40_000}])
def test_a_stream_that_is_not_read(limit: dict[str, int]) -> None:
    """A stream has the same limits; an unread one ends the session, and returns the events that it has."""
    client = memory_client(**limit)
    ended: list[Any] = []
    client.on("disconnected", ended.append)
    stream = client.events("server_message", timeout=GUARD)
    client.connect()
    text = json.dumps({"label": "rtvi-ai", "type": "server-message", "data": "x" * 100})
    for _ in range(200):
        transport_of(client).receive(text)
    until(lambda: session_has_ended(client))
    client.disconnect()
    assert isinstance(ended[0].error, RTVIError)
    assert 45 <= len(list(stream)) < 100


def test_events_of_the_transport() -> None:
    """A transport's own events are limited too, also if all are the same."""
    from rtvi_sync import RTVIEvent

    client, release, ended = blocked_client(max_queued_events=50)
    client.on("local_audio_level", lambda: None)
    for _ in range(60):
        transport_of(client).options.on_event(RTVIEvent.LOCAL_AUDIO_LEVEL, 0.5)
    overflowed(client, release, ended)


def test_manual_mode_ends_a_session_whose_events_are_not_processed() -> None:
    """In manual mode, the session ends with an error if the application does not process its events."""
    client = memory_client(events="manual", max_queued_events=20)
    ended: list[Any] = []
    client.on("server_message", lambda: None)
    client.on("disconnected", ended.append)
    client.connect()
    for n in range(30):
        bot_says(client, "server-message", n)
    until(lambda: session_has_ended(client))
    assert client.process_events() == 21
    assert isinstance(ended[0].error, RTVIError)
    with client:
        bot_says(client, "server-message", 1)
        assert client.process_events() == 1


def test_waiting_calls_fail() -> None:
    """A call that waits for an answer learns why the session has ended."""
    from rtvi_sync import DisconnectedError

    client, release, ended = blocked_client(bot=deaf_bot, max_queued_events=1, request_timeout=None)
    client.on("server_message", lambda: None)
    asking = InThread(lambda: client.send_client_request("ping"))
    until(lambda: len(transport_of(client).sent) == 2)
    for n in range(2):
        bot_says(client, "server-message", n)
    error = asking.error()
    assert isinstance(error, DisconnectedError)
    assert "queue is full" in str(error)
    overflowed(client, release, ended)


def test_default_limits() -> None:
    """100,000 events or 64 MiB."""
    options = RTVIClientOptions()
    assert (options.max_queued_events, options.max_queued_bytes) == (100_000, 64 * 1024 * 1024)
