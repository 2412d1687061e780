"""Clients of real bots, and the questions and waits of their tests."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

import rtvi_sync.cli
from rtvi_sync import Event, RTVIClient, RTVIEvent, RTVIMessage, WebSocketTransport
from rtvi_sync.media import BytesSink, BytesSource, NullSink, SilenceSource
from tests.support.slowness import GUARD

from .conftest import BotServer

TransportName = Literal["auto", "websocket", "webrtc", "eval"]  # of `RTVIClient.for_url()`

# A recording of a question, which `talk` says where no microphone is.
SPEECH = Path(rtvi_sync.cli.__file__).with_name("speech.wav")


def client_of(server: BotServer, **options: Any) -> RTVIClient:
    """Return a client whose requests go to the bot's own server."""
    return RTVIClient(
        **{
            "transport": WebSocketTransport(),
            "params": {"base_url": server.base_url},
            "connect_timeout": 20,
            "mic": SilenceSource(),
            "speaker": NullSink(),
            **options,
        }
    )


def message_of(event: Event) -> RTVIMessage:
    """Return the message that an event was made of."""
    assert event.message is not None
    return event.message


class Watch:
    """Takes events one after the other and keeps them."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = iter(events)
        self.seen: list[Event] = []

    def until(self, event: RTVIEvent, where: Callable[[Any], object] = lambda data: True) -> Event:
        """Take events until one of this type has data that `where` accepts; return that."""
        deadline = time.monotonic() + GUARD
        for happened in self._events:
            self.seen.append(happened)
            if happened.type is event and where(happened.data):
                return happened
            if time.monotonic() > deadline:
                break
        pytest.fail(f"no {event} in {GUARD} s, but {[e.type.value for e in self.seen]}", pytrace=False)

    def data(self, event: RTVIEvent) -> list[Any]:
        """Return the data of all events of a type that were taken."""
        return [happened.data for happened in self.seen if happened.type is event]


def ask_until(client: RTVIClient, question: str, count: int) -> list[Any]:
    """Ask the bot for a list until it has a number of entries: earlier messages take effect a moment later."""
    deadline = time.monotonic() + 5
    while True:
        entries: list[Any] = client.send_client_request(question)
        if len(entries) >= count or time.monotonic() > deadline:
            return entries


def as_list(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of an action as the protocol has them."""
    return [{"name": name, "value": value} for name, value in arguments.items()]


def assert_echo(client_with: Callable[..., RTVIClient]) -> None:
    """Check that two seconds of noise at 16 kHz, sent in real time and echoed by the bot, return unchanged.

    Args:
        client_with: returns a client of the bot with these options.
    """
    noise = random.Random(1).randbytes(2 * 2 * 16000)
    source, sink = BytesSource(noise, 16000), BytesSink()

    with client_with(mic=source, speaker=sink) as client:
        heard = 0
        audio = client.tracks().bot.audio
        assert audio is not None
        for frame in audio.frames():
            heard += len(frame.pcm)
            if heard >= len(noise):
                break
        assert source.wait(0)

    assert sink.sample_rate_hz == 16000
    assert sink.pcm[: len(noise)] == noise
