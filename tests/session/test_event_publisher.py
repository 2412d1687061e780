"""The publisher of one session on a bus of its own: which states and events it lets through, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import CloseInfo, RTVIEvent, TransportState
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.session.event_bus import EventBus, EventPublisher
from tests.support.moments import at

pytestmark = pytest.mark.inside

STEPS = [
    TransportState.INITIALIZING,
    TransportState.INITIALIZED,
    TransportState.AUTHENTICATING,
    TransportState.CONNECTING,
]


class Bus:
    """The client of a bus whose events the test delivers, and the calls of its handlers."""

    def __init__(self) -> None:
        self.bus = EventBus(self, manual=True, max_events=100, max_bytes=1000)
        self._heard: list[tuple[str, Any]] = []
        for name in ("transport_state_changed", "connected", "disconnected", "local_audio_level"):
            self.bus.add(name, lambda data, name=name: self._heard.append((name, data)))

    def publisher(self, *steps: TransportState) -> EventPublisher:
        """Return a publisher that has taken some steps. In manual mode it needs no worker."""
        workers: Any = None
        publisher = EventPublisher(self.bus, workers)
        assert all(publisher.move(step) for step in steps)
        return publisher

    def heard(self, name: str) -> list[Any]:
        """Return the payloads of all events of a name that were published by now."""
        self.bus.queue.run_queued(Deadline(0.0))
        return [data for heard, data in self._heard if heard == name]


def test_a_state_that_may_not_follow_is_not_published() -> None:
    """A step that the table of states does not have is refused, and the state stays."""
    bus = Bus()
    publisher = bus.publisher(*STEPS)
    assert not publisher.move(TransportState.READY)
    assert publisher.state is TransportState.CONNECTING
    assert bus.heard("transport_state_changed") == STEPS


def test_only_the_publisher_that_started_last_changes_the_state() -> None:
    """The late step of an older session does not change the state of the next one."""
    bus = Bus()
    old, new = bus.publisher(), bus.publisher()
    assert old.overtaken
    assert not old.move(TransportState.INITIALIZING)
    assert bus.heard("transport_state_changed") == []
    assert new.move(TransportState.INITIALIZING)
    assert bus.heard("transport_state_changed") == [TransportState.INITIALIZING]


def test_an_attempt_takes_no_step_while_its_session_ends() -> None:
    """A transport that connects though its attempt was ended is not published as connected."""
    bus = Bus()
    publisher = bus.publisher(*STEPS)
    publisher.end()
    assert not publisher.opened()
    assert publisher.move(TransportState.DISCONNECTING)
    assert bus.heard("transport_state_changed") == [*STEPS, TransportState.DISCONNECTING]


def test_a_session_that_ends_just_now_is_not_connected() -> None:
    """A session that ends between the state `connected` and the event `connected` publishes no `connected` and no
    `disconnected`.
    """
    bus = Bus()
    publisher = bus.publisher(*STEPS)

    def end_first(go_on: Any, data: object) -> Any:
        if data is None:
            publisher.end()
        return go_on()

    with at("listeners are looked for", end_first):
        assert not publisher.opened()
    publisher.finish(1, CloseInfo(), None, 0.0)
    assert (bus.heard("connected"), bus.heard("disconnected")) == ([], [])
    assert bus.heard("transport_state_changed")[-1] is TransportState.DISCONNECTED


@pytest.mark.parametrize("rounds", [1, 3])
def test_of_measured_values_the_last_one_is_delivered(rounds: int) -> None:
    """Values that are measured faster than they are delivered are one event, and so are those after it."""
    bus = Bus()
    publisher = bus.publisher()
    for number in range(1, rounds + 1):
        for value in range(3):
            publisher.latest(RTVIEvent.LOCAL_AUDIO_LEVEL, (number, value))
        assert len(bus.bus.queue) == 1
        assert bus.heard("local_audio_level") == [(n, 2) for n in range(1, number + 1)]


def test_nothing_follows_the_end() -> None:
    """After the last event of a failed attempt no state and no call is queued, and no event is delivered."""
    bus = Bus()
    publisher = bus.publisher(*STEPS)
    publisher.finish(1, CloseInfo(initiator="network"), None, 0.0, in_connect=True)
    assert not publisher.move(TransportState.DISCONNECTED)
    assert not publisher.call(lambda: None, 0)
    publisher.event(RTVIEvent.LOCAL_AUDIO_LEVEL, 1.0)
    assert bus.heard("transport_state_changed") == [*STEPS, TransportState.ERROR]
    assert bus.heard("local_audio_level") == []
