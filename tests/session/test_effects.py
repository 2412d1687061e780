"""Effects of the engine: answers reach those who wait, events those who listen, and warnings the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from rtvi_sync.session.effects import Effects

from rtvi_sync import ProtocolError, RTVIEvent, RTVIMessage
from rtvi_sync.protocol import engine


class Publisher:
    """An event publisher that records what it is given."""

    def __init__(self, *listened: RTVIEvent) -> None:
        self.listened = listened
        self.queued: list[tuple[list[Any], int]] = []

    def has_listener(self, event: RTVIEvent) -> bool:
        return event in self.listened

    def item(self, event: RTVIEvent, data: Any, *_: Any) -> tuple[RTVIEvent, Any]:
        return event, data

    def enqueue(self, events: list[Any], size: int) -> None:
        self.queued.append((events, size))


class Effect:
    """A `Deliver` whose data is made, or refused, when it is asked for."""

    def __init__(self, event: RTVIEvent, data: Any) -> None:
        self.event, self._data = event, data
        self.message = RTVIMessage("x", None, None)

    def decode(self) -> Any:
        if isinstance(self._data, Exception):
            raise self._data
        return self._data


def deliver(effects: Effects, effect: Any, size: int = 1) -> None:
    cause: Any = None
    effects.deliver(effect, cause, 0.0, size)


def effects_for(publisher: Any) -> Effects:
    return Effects(publisher)


def test_events_that_came_together_are_queued_together() -> None:
    """Nothing is queued before `flush()`, and then once, with the bytes of all."""
    publisher = Publisher(RTVIEvent.METRICS)
    effects = effects_for(publisher)
    deliver(effects, Effect(RTVIEvent.METRICS, 1), 10)
    deliver(effects, Effect(RTVIEvent.METRICS, 2), 20)
    assert publisher.queued == []
    effects.flush()
    effects.flush()
    assert publisher.queued == [([(RTVIEvent.METRICS, 1), (RTVIEvent.METRICS, 2)], 30)]


def test_what_has_no_listener_is_not_decoded() -> None:
    """Neither queued nor decoded: it would only cost time."""
    publisher = Publisher()
    effects = effects_for(publisher)
    deliver(effects, Effect(RTVIEvent.METRICS, AssertionError("decoded")))
    effects.flush()
    assert publisher.queued == []


def test_what_breaks_the_protocol_is_an_unknown_message(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and delivered as it came to those who listen to unknown messages."""
    publisher = Publisher(RTVIEvent.METRICS, RTVIEvent.UNKNOWN_MESSAGE)
    effects = effects_for(publisher)
    effect = Effect(RTVIEvent.METRICS, ProtocolError("no list"))
    deliver(effects, effect)
    effects.flush()
    assert publisher.queued == [([(RTVIEvent.UNKNOWN_MESSAGE, effect.message)], 1)]
    assert "no list" in caplog.text


def test_a_flood_of_warnings_is_logged_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """The first ones are warnings, with a last one that says so; the rest is for those who look for it."""
    effects = effects_for(Publisher())
    with caplog.at_level(logging.DEBUG):
        for number in range(50):
            effects.perform(engine.Warn(f"odd {number}"))
    levels = [record.levelno for record in caplog.records]
    assert levels.count(logging.WARNING) == 21
    assert levels.count(logging.DEBUG) == 30
