"""The level of a microphone, while nothing is connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from rtvi_sync import DeviceError
from rtvi_sync.cli import devices
from rtvi_sync.cli.devices import SILENCE_DBFS, MicLevelMonitor
from rtvi_sync.media import AudioLevel

pytestmark = pytest.mark.inside


class FakeClient:
    """A client that opens no device: the test calls its handlers."""

    fails: DeviceError | None = None
    made: ClassVar[list[FakeClient]] = []

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.handlers: dict[str, Callable[[Any], None]] = {}
        self.steps: list[str] = []
        self.made.append(self)

    def on(self, event: str, handler: Callable[[Any], None]) -> None:
        self.handlers[event] = handler

    def init_devices(self) -> None:
        self.steps.append("init_devices")
        if self.fails is not None:
            raise self.fails

    def close(self) -> None:
        self.steps.append("close")


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the client of the monitor."""
    monkeypatch.setattr(devices, "RTVIClient", FakeClient)


def test_the_latest_level_and_the_peak() -> None:
    """Levels arrive while the context is open; the loudest one is kept."""
    with MicLevelMonitor("ALSA/desk") as monitor:
        client = FakeClient.made[-1]
        assert client.options["mic"] == "ALSA/desk"
        assert (monitor.current_dbfs, monitor.loudest_dbfs, monitor.problem) == (SILENCE_DBFS, SILENCE_DBFS, None)
        for dbfs in (-40.0, -20.0, -60.0):
            client.handlers["local_audio_level"](AudioLevel(level=0.1, dbfs=dbfs))
        assert (monitor.current_dbfs, monitor.loudest_dbfs) == (-60.0, -20.0)
    assert client.steps == ["init_devices", "close"]


def test_a_microphone_that_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is kept for the display, and the client is still closed."""
    monkeypatch.setattr(FakeClient, "fails", DeviceError("in use", devices=("mic",)))
    with MicLevelMonitor("ALSA/desk") as monitor:
        assert "in use" in str(monitor.problem)
    assert FakeClient.made[-1].steps == ["init_devices", "close"]


def test_a_microphone_that_fails_and_works_again() -> None:
    """A failure silences the meter; the next level ends it. The peak stays."""
    with MicLevelMonitor("ALSA/desk") as monitor:
        handlers = FakeClient.made[-1].handlers
        handlers["local_audio_level"](AudioLevel(level=0.1, dbfs=-20.0))
        handlers["device_error"](DeviceError("unplugged", devices=("mic",)))
        assert (monitor.current_dbfs, monitor.loudest_dbfs) == (SILENCE_DBFS, -20.0)
        problem = monitor.problem
        assert problem is not None
        handlers["local_audio_level"](AudioLevel(level=0.1, dbfs=-30.0))
        assert (monitor.current_dbfs, monitor.problem) == (-30.0, None)
