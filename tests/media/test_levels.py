"""How loud it is: how often it is told, what it costs, and when it is silent again."""

from __future__ import annotations

import struct

import pytest

from rtvi_sync.events import RTVIEvent
from rtvi_sync.media import levels as levels_module
from rtvi_sync.media.levels import LevelMeter, level_of
from rtvi_sync.media.status_reporter import DeviceStatusReporter

LOUD = struct.pack("<h", 16384) * 480


class EventSink:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.told = []
        self.listening = True

    def has_listener(self, type_):
        return self.listening

    def latest(self, type_, data):
        self.told.append(data)


@pytest.fixture
def event_sink():
    return EventSink()


@pytest.fixture
def meter(event_sink):
    status_reporter = DeviceStatusReporter()
    status_reporter.event_sink = event_sink
    return LevelMeter(RTVIEvent.LOCAL_AUDIO_LEVEL, status_reporter)


def test_at_most_20_a_second(meter, event_sink):
    """However short the pieces are."""
    for number in range(1000):
        meter.feed(LOUD[:96], number / 1000)
    assert 15 <= len(event_sink.told) <= 20


def test_all_that_came_since_the_last_is_measured(meter, event_sink):
    """A piece that is loud counts though the one that comes last is not."""
    meter.feed(LOUD, 0.0)
    meter.feed(LOUD, 0.02)
    meter.feed(bytes(960), 0.05)
    assert event_sink.told[1].level == pytest.approx(0.5 / 2**0.5)


def test_nothing_is_measured_while_nobody_listens(meter, event_sink, monkeypatch):
    """It costs a question."""
    monkeypatch.setattr(levels_module, "level_of", lambda pcm: pytest.fail("it was measured"))
    event_sink.listening = False
    meter.feed(LOUD, 0.0)
    assert event_sink.told == []
    assert not meter.loud


def test_who_listens_later_is_told_of_what_is_heard_then(meter, event_sink):
    """What came while the one before listened still is long over."""
    meter.feed(LOUD, 0.0)
    meter.feed(LOUD, 0.02)
    event_sink.listening = False
    meter.feed(bytes(960), 0.06)
    event_sink.listening = True
    meter.feed(bytes(960), 100.0)
    assert [level.level for level in event_sink.told] == [0.5, 0.0]


def test_of_a_long_piece_the_end_is_measured(meter, event_sink, monkeypatch):
    """A bot may send a minute at once, and the io thread has other things to do."""
    measured = []
    monkeypatch.setattr(levels_module, "level_of", lambda pcm: measured.append(len(pcm)) or level_of(b""))
    meter.feed(bytes(24000 * 2 * 60), 0.0)
    assert measured == [9600]


def test_silence_is_told_once_and_soon(meter, event_sink):
    """A quarter of a second after the last piece."""
    meter.feed(LOUD, 1.0)
    meter.quiet(1.2)
    assert len(event_sink.told) == 1
    meter.quiet(1.3)
    assert len(event_sink.told) == 2
    meter.quiet(9.0)
    assert [(level.level, level.dbfs) for level in event_sink.told[1:]] == [(0.0, -100.0)]


@pytest.mark.parametrize(
    ("pcm", "level", "dbfs"),
    [
        (b"", 0.0, -100.0),
        (bytes(960), 0.0, -100.0),
        (struct.pack("<h", -32768) * 480, 1.0, 0.0),
        (struct.pack("<h", 1) + bytes(19998), 3.05e-7, -100.0),  # less than any sound card hears
    ],
)
def test_levels(pcm, level, dbfs):
    """From silence to the loudest there can be."""
    assert level_of(pcm).level == pytest.approx(level, rel=0.01)
    assert level_of(pcm).dbfs == pytest.approx(dbfs, abs=0.01)
