"""Clocks that differ, and bursts after a stall, while a bot speaks without a pause."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator

import pytest

from rtvi_sync.media import AudioFrame
from rtvi_sync.media.devices.drift_control import DriftControl

pytestmark = pytest.mark.inside

FRAME = 0.02
PCM = bytes(960)


def delays(seconds: float, card: float = 1.0, late: Callable[[float], float] = lambda _: 0.0) -> Iterator[float]:
    """Play frames that arrive each 20 ms, `late(time)` seconds late, and give the delay of each.

    Args:
        seconds: how long.
        card: the speed of the sound card's clock.
        late: returns by how much the frame that is sent at a time is late.
    """
    control = DriftControl()
    control.begin(0.08)
    empty_at, arrived = 0.08, 0.0
    for number in range(round(seconds / FRAME)):
        sent = number * FRAME
        arrived = max(arrived, sent + late(sent))
        empty_at = max(empty_at, arrived)  # it has run dry
        control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=arrived)], empty_at)
        yield empty_at - arrived
        empty_at += FRAME / control.speed / card


@pytest.mark.parametrize("card", [0.9995, 1.0005])
def test_an_hour_of_clocks_that_differ(card):
    """The delay stays within 50 ms of its first value."""
    assert all(abs(delay - 0.08) < 0.05 for delay in delays(3600.0, card))


def test_clocks_that_do_not_differ():
    """Nothing is changed, also if each frame is a little late."""
    control = DriftControl()
    control.begin(0.08)
    for number in range(1000):
        frame = AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=number * FRAME + number % 4 * 0.005)
        control.note([frame], 0.08 + number * FRAME)
        assert control.speed == 1.0


def test_a_stall():
    """Audio that arrives at once after 0.4 s is late at first, and on time after a minute and a half."""
    stall = list(delays(120.0, late=lambda sent: max(0.0, 20.4 - sent) if sent > 20 else 0.0))
    assert stall[1030] > 0.38
    assert max(stall[5500:]) < 0.13


def test_a_network_that_is_late_now_and_then():
    """The delay grows by that, and stays, so that later speech is not interrupted."""
    uneven = list(delays(120.0, late=lambda sent: 0.1 if sent % 2 < 0.02 else 0.0))
    assert sum(delay <= 0.0 for delay in uneven[:500]) > 0
    assert min(uneven[1000:]) > 0.03


def test_the_speed_is_not_heard():
    """Drift control changes the speed by at most one hundredth."""
    control = DriftControl()
    control.begin(0.08)
    control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=0.0)], 60.0)
    assert control.speed == 1.01
    control.begin(0.08)
    control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=0.0)], -60.0)
    assert control.speed == 0.99


def test_audio_at_its_speed():
    """Late audio is played faster, and audio after a pause unchanged."""
    control = DriftControl()
    control.begin(0.08)
    control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=0.0)], 10.0)
    assert len(b"".join(control.convert(PCM) for _ in range(100))) == pytest.approx(96000 / 1.01, abs=40)
    control.begin(0.08)
    control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=0.0)], 0.08)
    speech = bytes(range(1, 241)) * 4
    assert control.convert(speech) + control.convert(speech)[:16] == speech


def test_without_numpy(monkeypatch):
    """Audio is played as it is."""
    load = builtins.__import__

    def find(name, *args):
        if name == "numpy":
            raise ImportError
        return load(name, *args)

    monkeypatch.setattr(builtins, "__import__", find)
    control = DriftControl()
    control.begin(0.08)
    control.note([AudioFrame(pcm=PCM, sample_rate_hz=24000, timestamp=0.0)], 10.0)
    assert control.convert(PCM) == PCM
