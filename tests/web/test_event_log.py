"""The log of a session: its events, and the events that each reader gets."""

from __future__ import annotations

import json
import threading
from typing import Any

import attrs
import pytest

from rtvi_sync import RTVIEvent, TransportState, messages
from rtvi_sync.web.event_log import EventLog, LoggedEvent, Position, as_json
from tests.support import limits
from tests.support.threads import running

pytestmark = pytest.mark.inside


def events_in(read: list[LoggedEvent] | None) -> list[Any]:
    """Return the events that were read from a log."""
    assert read is not None
    return [json.loads(event.text) for event in read]


def filled(count: int, *, keep: int = 100) -> EventLog:
    """Return a log with the numbers from 1 to `count`."""
    log = EventLog(keep)
    for number in range(1, count + 1):
        log.add(str(number))
    return log


def test_words_that_are_being_sent() -> None:
    """The words of a successful send precede messages that arrived during it; a failed send leaves none."""
    log = EventLog(100)

    def fail() -> None:
        with log.after("lost"):
            log.add("4")
            raise OSError("refused")

    with log.after("1"):
        log.add("3")
        with pytest.raises(OSError, match="refused"):
            fail()
        with log.after("5"):
            log.add("6")
        assert log.read(Position(), 0.0) == (Position(), [])
    log.add("7")
    position, chunk = log.read(Position(), 0.0)
    assert events_in(chunk) == [1, 3, 4, 5, 6, 7]
    with log.after("9"):
        log.add("8")
        log.close()
    assert events_in(log.read(position, 0.0)[1]) == [8]


def test_a_log_keeps_the_last_events_and_counts_the_others() -> None:
    """A reader who is behind gets the number of lost events, then the rest; one who is not gets only new events."""
    log = filled(10, keep=3)
    place, chunk = log.read(Position(), 0)
    assert events_in(chunk) == [{"event": "relayGap", "data": {"missed": 7}}, 8, 9, 10]
    log.add("11")
    place, chunk = log.read(place, 0)
    assert events_in(chunk) == [11]
    for number in (12, 13, 14, 15):
        log.add(str(number))
    assert events_in(log.read(place, 0)[1]) == [{"event": "relayGap", "data": {"missed": 1}}, 13, 14, 15]


def test_a_log_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large events push out more of the older ones; the newest stays, at any size."""
    limits.patch(monkeypatch, event_log=1000)
    log = EventLog(1000)
    for text in ("1", "2", "3" * 980):
        log.add(text)
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 2}}, int("3" * 980)]
    log.add("4" * 3000)
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 3}}, int("4" * 3000)]
    log.add("5")
    assert events_in(log.read(Position(), 0)[1]) == [{"event": "relayGap", "data": {"missed": 4}}, 5]


def test_of_a_level_the_newest_is_sent() -> None:
    """Of a thousand unread levels one of each kind is kept, and no event is pushed out."""
    log = filled(2, keep=2)
    for value in range(1000):
        log.replace(RTVIEvent.BOT_AUDIO_LEVEL, str(value))
        log.replace(RTVIEvent.USER_AUDIO_LEVEL, str(-value))
    place, chunk = log.read(Position(), 0)
    assert events_in(chunk) == [1, 2, 999, -999]
    log.replace(RTVIEvent.BOT_AUDIO_LEVEL, "1000")
    place, chunk = log.read(place, 0)
    assert chunk == [LoggedEvent("1000")]  # without an id
    assert log.read(place, 0) == (place, [])


def test_a_reader_waits_and_is_woken() -> None:
    """A blocked read() returns an event when it arrives, nothing after the timeout, and None after the end."""
    log = EventLog(10)
    assert log.read(Position(), 0.01) == (Position(), [])
    with running(lambda: log.read(Position(), 10.0)) as reading:
        assert reading.goes_on(0.05)
        log.add("1")
        assert events_in(reading.get()[1]) == [1]
    with running(lambda: log.read(Position(1), 10.0)) as reading:
        assert reading.goes_on(0.05)
        log.close()
        assert reading.get() == (Position(1), None)
    log.add("2")
    assert log.read(Position(1), 0) == (Position(1), None)


def test_many_readers_and_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of several streams gets every event of several writers, in one order."""
    log = EventLog(10_000)

    def write(name: int) -> None:
        for number in range(500):
            log.add(f"[{name}, {number}]")

    def read() -> list[Any]:
        place = Position()
        found: list[Any] = []
        while len(found) < 2000:
            place, chunk = log.read(place, 5.0)
            found += events_in(chunk)
        return found

    with running(read) as one, running(read) as other:
        writers = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        found = one.get()
        assert found == other.get()
    assert [[number for name, number in found if name == who] for who in range(4)] == [list(range(500))] * 4


@attrs.frozen(kw_only=True)
class Odd:
    """A payload with something that is no JSON."""

    error: BaseException
    when: float
    extra: dict[str, Any]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (None, None),
        (TransportState.READY, "ready"),
        ({"a": [1, None, "ü"]}, {"a": [1, None, "ü"]}),
        ([float("nan"), float("inf"), 1.5], [None, None, 1.5]),
        (messages.BotTTSTextData(text="x", extra={"inside": 1}), {"text": "x"}),
        (messages.BotOutputData(text="x", spoken=False), {"text": "x", "spoken": False}),
        (Odd(error=KeyError("secret"), when=float("nan"), extra={}), {"error": None, "when": None}),
        (b"bytes", None),
    ],
)
def test_payloads_as_json(data: Any, told: Any) -> None:
    """The JSON has the fields that the class knows and that are set; no exceptions; null for values that JSON lacks."""
    assert json.loads(as_json("x", data)) == {"event": "x", "data": told}
