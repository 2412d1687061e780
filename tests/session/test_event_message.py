"""The message of an event, which is made when it is first read."""

from __future__ import annotations

import copy
import json
import pickle

import attrs
import pytest

from rtvi_sync import Event, RTVIEvent, RTVIMessage, signals
from tests.support.clients import memory_client, transport_of
from tests.support.slowness import GUARD

DATA = {"text": "Hello", "final": True, "new": [1, None]}
SENT = {"label": "rtvi-ai", "type": "user-transcription", "id": "m1", "data": DATA}
MESSAGE = RTVIMessage("user-transcription", DATA, "m1")


@pytest.fixture(
    params=[json.dumps(SENT), json.dumps(SENT).encode(), SENT, MESSAGE], ids=lambda sent: type(sent).__name__
)
def heard(request):
    """Return the event of a message, as a signal, a stream and a waiting call bring it."""
    with memory_client() as client:
        by_signal: list[Event] = []
        receive = signals.user_transcript.connect(lambda _, event: by_signal.append(event), sender=client, weak=False)
        with client.events("user-transcription", timeout=GUARD) as events:
            transport_of(client).receive(request.param)
            by_stream = next(iter(events))
        transport_of(client).receive(request.param)
        client.disconnect()
        signals.user_transcript.disconnect(receive, sender=client)
        return [*by_signal, by_stream]


def test_it_is_the_message(heard):
    """A listener gets the whole message: type, data, id; and each time the same object."""
    assert len(heard) == 3
    for event in heard:
        assert event.message == MESSAGE
        assert event.message is event.message


def test_it_counts_like_any_other_attribute(heard):
    """Events compare, print, copy and pickle with their message as with any other attribute."""
    event = heard[0]
    by_hand = Event(type=RTVIEvent.USER_TRANSCRIPT, data=event.data, received_at=event.received_at, message=MESSAGE)
    assert pickle.loads(pickle.dumps(heard[1])).message == MESSAGE
    assert event == by_hand == copy.copy(event)
    assert repr(event) == repr(by_hand)
    assert attrs.evolve(event, data=None).message == MESSAGE


def test_an_event_stays_frozen(heard):
    """An event's attributes cannot be set, and an unknown one cannot be read."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        heard[0].message = None
    with pytest.raises(AttributeError, match="'Event' object has no attribute 'mesage'"):
        _ = heard[0].mesage
