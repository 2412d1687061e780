"""A bot that says anything at all: the session, its threads and its handlers stand it."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync import Event, RTVIClient, RTVIEvent, TransportState, signals
from tests.support.clients import memory_client, transport_of
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.wire import INBOUND

MESSAGES = 10_000

WORDS = ["", "x", "ü€😀", "\ud800", "\x00", "1" * 400, "error", "rtvi-ai", "completed", "NaN", "2.2.0"]
KEYS = [
    "text",
    "final",
    "error",
    "message",
    "d",
    "t",
    "config",
    "options",
    "service",
    "spoken_progress",
    "accumulated_text",
    "segment_id",
    "ttfb",
    "value",
    "tokens",
    "function_name",
    "arguments",
    "kind",
    "job_id",
    "workers",
    "version",
    "about",
    "",
    "__class__",
    "extra",
]


class Fuzzer:
    """Makes messages from a seed: well-formed ones, broken ones, and noise."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 0) -> Any:
        r = self._random
        kind = r.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return r.choice([None, True, False])
        if kind == 1:
            return r.choice([0, -1, 2**63, -(2**70), r.randrange(1000)])
        if kind == 2:
            return r.choice([0.5, -1e308, 1e-320, float("inf"), float("nan")])
        if kind < 6:
            return r.choice(WORDS)
        if kind == 6:
            return [self.value(depth + 1) for _ in range(r.randrange(4))]
        return {r.choice(KEYS): self.value(depth + 1) for _ in range(r.randrange(6))}

    def document(self) -> Any:
        r = self._random
        type_ = r.choice(TYPES) if r.random() < 0.9 else self.value(3)
        document: dict[str, Any] = {"label": "rtvi-ai", "type": type_}
        if r.random() < 0.8:
            document["data"] = self.value()
        if r.random() < 0.5:
            document["id"] = self.value(2) if r.random() < 0.5 else r.choice(["1", "deadbeef"])
        if r.random() < 0.05:
            document["label"] = self.value(2)
        if r.random() < 0.05:
            del document[r.choice(list(document))]
        return document

    def message(self) -> Any:
        r = self._random
        kind = r.random()
        if kind < 0.15:
            return self.document()
        text = json.dumps(self.document(), ensure_ascii=r.random() < 0.5)
        if kind < 0.7:
            return text
        if kind < 0.8:
            return text.encode("utf-8", "surrogatepass")
        if kind < 0.95:  # a piece cut out, doubled or replaced
            start = r.randrange(len(text))
            end = min(len(text), start + r.randrange(12))
            return text[:start] + r.choice(["", text[start:end] * 2, "\x00", "}", '"', "[" * 300]) + text[end:]
        if kind < 0.99:
            return r.randbytes(r.randrange(60))
        return r.choice(["[" * 50_000, '{"a":' * 50_000, "9" * 5000, "null", "[]", '"x"', ""])


TYPES = [*INBOUND, "client-ready", "from-the-future"]


@pytest.fixture
def unhandled() -> Iterator[list[Any]]:
    """Yield the exceptions that no thread has caught."""
    caught: list[Any] = []
    before = threading.excepthook
    threading.excepthook = caught.append
    yield caught
    threading.excepthook = before


def listen_to_everything(client: RTVIClient) -> list[int]:
    """Register handlers for all events, which read every field; return the counter of events."""
    count = [0]

    def handle(data: Any) -> None:
        repr(data)
        count[0] += 1

    for event in RTVIEvent:
        if event is not RTVIEvent.HANDLER_ERROR:
            client.on(event, handle)
    return count


def test_ten_thousand_messages(unhandled: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """10,000 fuzzed messages through a live session with every event listened to at all three doors: no exception
    gets out anywhere, no log is flooded, and the session still answers."""
    fuzzer = Fuzzer(1)
    failures: list[Any] = []
    signalled: list[Event] = []

    def receiver(sender: RTVIClient, event: Event) -> None:
        if event.message is not None:
            json.dumps(event.message.to_dict())
        signalled[:] = [event]

    client = memory_client(max_queued_events=10 * MESSAGES, max_queued_bytes=2**40)
    count = listen_to_everything(client)
    client.on("handler_error", failures.append)
    for event in RTVIEvent:
        signals.BY_EVENT[event].connect(receiver, sender=client)
    with client:
        transport = transport_of(client)
        with client.events(timeout=GUARD) as stream:
            reader = threading.Thread(target=lambda: [repr(event) for event in stream], daemon=True)
            reader.start()

            def speak() -> None:
                for number in range(MESSAGES):
                    transport.receive(fuzzer.message())
                    if number % 5000 == 0:
                        assert client.send_client_request("still there?", number) == number

            # On the main thread, the transport would start a thread to receive each message.
            InThread(speak).get(6 * GUARD)
            assert client.state is TransportState.READY
            assert client.send_client_request("ping", {"a": [1]}) == {"a": [1]}
        reader.join(GUARD)
        assert not reader.is_alive()
    assert failures == []
    assert unhandled == []
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) < 50
    assert count[0] > MESSAGES // 2
    assert signalled[0].type is RTVIEvent.DISCONNECTED


@pytest.mark.parametrize("seed", range(20))
def test_noise_while_connecting(seed: int, unhandled: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    """A bot that talks nonsense before it is ready, and in the middle of everything: the handshake completes, or fails
    with an error of ours."""
    from rtvi_sync import ProtocolError, RTVIMessage

    fuzzer = Fuzzer(seed)

    def bot(transport: Any, message: RTVIMessage) -> Iterator[Any]:
        for _ in range(50):
            yield fuzzer.message()
        if message.type == "client-ready":
            yield RTVIMessage("bot-ready", {"version": "2.2.0"}, message.id)
        elif message.type == "client-message":
            yield RTVIMessage("server-response", message.data, message.id)

    client = memory_client(bot)
    listen_to_everything(client)
    try:
        with client:
            for n in range(20):
                client.send_client_request("ping", n)
    except ProtocolError as error:
        assert "bot-ready" in str(error)  # noqa: PT017 - whether it fails depends on the seed
    assert client.state in (TransportState.DISCONNECTED, TransportState.ERROR)
    assert unhandled == []
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
