"""Audio levels: which are speech; the meter's rate, its cost, and the return to silence."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rtvi_sync.events import RTVIEvent
from rtvi_sync.media import AudioLevel
from rtvi_sync.media import levels as levels_module
from rtvi_sync.media.levels import FLOOR, LevelMeter, audible, level_of

pytestmark = pytest.mark.inside

LOUD = struct.pack("<h", 16384) * 480


class Listener:
    """A publisher that keeps the levels."""

    def __init__(self) -> None:
        self.published: list[Any] = []
        self.listening = True

    def has_listener(self, type_):
        return self.listening

    def latest(self, type_, data):
        self.published.append(data)


@pytest.fixture
def publisher():
    return Listener()


@pytest.fixture
def meter():
    return LevelMeter(RTVIEvent.LOCAL_AUDIO_LEVEL)


def test_at_most_20_a_second(meter, publisher):
    """The limit holds for audio frames of any length."""
    for number in range(1000):
        meter.feed(LOUD[:96], number / 1000, publisher)
    assert 15 <= len(publisher.published) <= 20


def test_all_audio_since_the_last_level_is_measured(meter, publisher):
    """A loud frame counts even if the last one is silent."""
    meter.feed(LOUD, 0.0, publisher)
    meter.feed(LOUD, 0.02, publisher)
    meter.feed(bytes(960), 0.05, publisher)
    assert publisher.published[1].level == pytest.approx(0.5 / 2**0.5)


def test_nothing_is_measured_without_a_listener(meter, publisher, monkeypatch):
    """Without a listener a frame costs one query."""
    monkeypatch.setattr(levels_module, "level_of", lambda pcm: pytest.fail("it was measured"))
    publisher.listening = False
    meter.feed(LOUD, 0.0, publisher)
    assert publisher.published == []
    assert not meter.loud


def test_a_later_listener_gets_the_level_of_new_audio(meter, publisher):
    """A later listener gets the level of new audio, not of audio from before the first listener left."""
    meter.feed(LOUD, 0.0, publisher)
    meter.feed(LOUD, 0.02, publisher)
    publisher.listening = False
    meter.feed(bytes(960), 0.06, publisher)
    publisher.listening = True
    meter.feed(bytes(960), 100.0, publisher)
    assert [level.level for level in publisher.published] == [0.5, 0.0]


def test_of_a_long_frame_the_end_is_measured(meter, publisher, monkeypatch):
    """A bot may send a minute at once, which must not block the I/O thread."""
    measured: list[int] = []

    def measure(pcm: bytes) -> AudioLevel:
        measured.append(len(pcm))
        return level_of(b"")

    monkeypatch.setattr(levels_module, "level_of", measure)
    meter.feed(bytes(24000 * 2 * 60), 0.0, publisher)
    assert measured == [9600]


def test_silence_is_published_once_and_soon(meter, publisher):
    """Silence is published 0.25 s after the last frame."""
    meter.feed(LOUD, 1.0, publisher)
    meter.quiet(1.2, publisher)
    assert len(publisher.published) == 1
    meter.quiet(1.3, publisher)
    assert len(publisher.published) == 2
    meter.quiet(9.0, publisher)
    assert [(level.level, level.dbfs) for level in publisher.published[1:]] == [(0.0, -100.0)]


@pytest.mark.parametrize(
    ("pcm", "level", "dbfs"),
    [
        (b"", 0.0, -100.0),
        (bytes(960), 0.0, -100.0),
        (struct.pack("<h", -32768) * 480, 1.0, 0.0),
        (struct.pack("<h", 1) + bytes(19998), 3.05e-7, -100.0),  # below the resolution of any sound card
    ],
)
def test_levels(pcm, level, dbfs):
    """The level ranges from silence to full scale."""
    assert level_of(pcm).level == pytest.approx(level, rel=0.01)
    assert level_of(pcm).dbfs == pytest.approx(dbfs, abs=0.01)


def test_noise_is_not_audible() -> None:
    """Sound below the noise of a converter is silence, even if nothing else is louder."""
    assert audible([0.0, FLOOR - 1, FLOOR]) == [False, False, True]


def test_breath_beside_speech_is_not_audible() -> None:
    """The limit rises with the loudest frame: 28 dB below it is no speech."""
    assert audible([10_000.0, 500.0, 390.0]) == [True, True, False]


def test_no_frames() -> None:
    """Nothing is audible in nothing."""
    assert audible([]) == []
