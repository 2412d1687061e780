"""Messages that a transport hands over together: their events keep their order, and all of them are queued."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import MemoryTransport, RTVIClient, RTVIEvent, RTVIMessage
from tests.support.clients import memory_client, ready_bot, server_message, transport_of
from tests.support.slowness import GUARD
from tests.support.threads import InThread


@pytest.fixture
def connected() -> Iterator[tuple[RTVIClient, list[Any]]]:
    """Yield a connected client, whose events stay queued until the test asks for them, and the list of its events."""
    client = memory_client(events="manual")
    heard: list[Any] = []
    client.on("server_message", heard.append)
    with client:
        assert client.stats().events_queued == 0
        yield client, heard


def give(client: RTVIClient, *messages: Any) -> None:
    """Have the transport hand over messages together."""
    transport_of(client).options.on_messages(messages)


def text_of(data: Any, type_: str = "server-message") -> str:
    """Return a message as its JSON text."""
    return json.dumps({"label": "rtvi-ai", "type": type_, "id": "1", "data": data})


def test_an_answer_among_events() -> None:
    """When a call returns with its answer, the events of the messages before it are queued."""
    returned = threading.Event()

    def messages(answer: RTVIMessage) -> Iterator[RTVIMessage]:
        yield server_message("before")
        yield answer
        assert returned.wait(GUARD)
        yield server_message("after")

    def bot(transport: MemoryTransport, message: RTVIMessage) -> Any:
        if message.type != "client-message":
            return ready_bot(transport, message)
        answer = RTVIMessage("server-response", message.data, message.id)
        options: Any = transport.options
        network.append(InThread(lambda: options.on_messages(messages(answer))))
        return None

    network: list[InThread] = []
    with memory_client(bot, events="manual") as client:
        client.on("server_message", lambda: None)
        client.send_client_request("question")
        assert client.stats().events_queued == 1
        returned.set()
        network[0].get()
        assert client.stats().events_queued == 2


@pytest.mark.parametrize("type_", ["llm-function-call-in-progress", "llm-function-call"])
def test_a_function_call_among_events(connected: tuple[RTVIClient, list[Any]], type_: str) -> None:
    """A function that the bot calls runs after the handlers for earlier messages, and before those for later ones."""
    client, heard = connected
    client.on(RTVIEvent(type_), lambda: heard.append("announced"))
    client.register_function_call_handler("tool", lambda call: heard.append("called"))
    data = {"tool_call_id": "1", "function_name": "tool", "arguments": {}, "args": {}}
    give(client, server_message("before"), RTVIMessage(type_, data), server_message("after"))
    client.process_events()
    assert heard == ["before", "announced", "called", "after"]


def test_the_bytes_of_all_are_counted(connected: tuple[RTVIClient, list[Any]]) -> None:
    """Each event holds the bytes of its own message, until it is delivered."""
    client, heard = connected
    texts = [text_of(data) for data in ("small", list(range(1000)), "small too")]
    alone = []
    for text in texts:
        give(client, text)
        alone.append(client.stats().event_bytes_queued)
        client.process_events()
    give(client, *texts)
    assert client.stats().events_queued == 3
    assert client.stats().event_bytes_queued == sum(alone) > sum(map(len, texts))
    client.process_events()
    assert len(heard) == 6
    assert client.stats().event_bytes_queued == 0


def test_what_breaks_the_protocol_and_nobody_listens_to(connected: tuple[RTVIClient, list[Any]]) -> None:
    """A payload that cannot be read is for those who listen to `unknown_message`; without them nothing is queued."""
    client, heard = connected
    client.on("user_transcript", heard.append)
    broken = text_of({"text": ["no text"]}, "user-transcription")
    give(client, broken)
    assert client.stats().events_queued == 0
    client.on("unknown_message", lambda message: heard.append(message.type))
    give(client, broken)
    assert client.stats().events_queued == 1
    client.process_events()
    assert heard == ["user-transcription"]


def test_a_transport_that_fails_among_messages(connected: tuple[RTVIClient, list[Any]]) -> None:
    """Messages that a transport delivered before its failure are still queued."""
    client, heard = connected

    def messages() -> Iterator[RTVIMessage]:
        yield server_message("before")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        transport_of(client).options.on_messages(messages())
    assert client.stats().events_queued == 1
    client.process_events()
    assert heard == ["before"]


def test_each_has_a_time_of_its_own() -> None:
    """Of events that arrive together, each has a later time than the one before."""
    with memory_client() as client, client.events("server-message", timeout=GUARD) as events:
        give(client, *map(text_of, range(5)))
        times = [next(events).received_at for _ in range(5)]
    assert times == sorted(set(times))
