"""A machine whose microphones and speakers run in real time, without PyAudio."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media import media as media_module
from rtvi_sync.media.devices import hotplug


def use_audio(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    """Let clients find the devices of `backend`."""
    monkeypatch.setattr("rtvi_sync.media.media.audio_backend", lambda _: backend)


def info(name: str, kind: str) -> MediaDeviceInfo:
    return MediaDeviceInfo(device_id=f"fake/{name}", kind=kind, label=name)


class FakeBackend:
    """Its devices are "fake/mic_a" and "fake/mic_b", which give samples of 1000 and 2000, and two speakers.

    Attributes:
        there: the available devices; the first of a kind is the default.
        open: the ids of the open devices.
        opened: the ids of all devices opened so far, in order.
        heard: the written audio, by id of the speaker.
        broken: the error of opening or using a device, by id.
        exclusive: only one microphone and one speaker may be open.
    """

    def __init__(self) -> None:
        self.there = [
            info("mic_a", "audioinput"),
            info("mic_b", "audioinput"),
            info("speaker_a", "audiooutput"),
            info("speaker_b", "audiooutput"),
        ]
        self.open: list[str] = []
        self.opened: list[str] = []
        self.heard: dict[str, bytearray] = {}
        self.broken: dict[str, DeviceError] = {}
        self.exclusive = False

    def devices(self) -> list[MediaDeviceInfo]:
        return list(self.there)

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> FakeInput:
        return FakeInput(self, self._find(device_id, "audioinput"), sample_rate_hz, period)

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> FakeOutput:
        return FakeOutput(self, self._find(device_id, "audiooutput"), sample_rate_hz, period)

    def _find(self, device_id: str | None, kind: str) -> MediaDeviceInfo:
        found = [each for each in self.there if each.kind == kind and device_id in (None, each.device_id)]
        if not found:
            device = "mic" if kind == "audioinput" else "speaker"
            raise DeviceError(f"There is no {kind} {device_id!r}", devices=(device,), type="not-found")
        taken = [each for each in self.there if each.kind == kind and each.device_id in self.open]
        if self.exclusive and taken:
            raise DeviceError("Another stream has the card", devices=("mic",), type="in-use")
        return found[0]


class _Stream:
    def __init__(self, backend: FakeBackend, device: MediaDeviceInfo, rate: int, period: float) -> None:
        self.device = device
        self.sample_rate_hz = rate
        self.buffer = 3 * period
        self._backend = backend
        self._period = period
        self._due = time.monotonic()
        self._work()
        backend.open.append(device.device_id)
        backend.opened.append(device.device_id)

    def _work(self) -> None:
        if self.device.device_id in self._backend.broken:
            raise self._backend.broken[self.device.device_id]

    def _pace(self, seconds: float) -> None:
        self._due = max(self._due, time.monotonic() - self.buffer) + seconds
        threading.Event().wait(max(0.0, self._due - time.monotonic()))
        self._work()

    def close(self) -> None:
        self._backend.open.remove(self.device.device_id)


class FakeInput(_Stream):
    def read(self) -> bytes:
        self._pace(self._period)
        value = 1000 if self.device.label == "mic_a" else 2000
        return value.to_bytes(2, "little") * round(self._period * self.sample_rate_hz)

    def backlog(self) -> float:
        return 0.0


class FakeOutput(_Stream):
    def write(self, pcm: bytes) -> None:
        self._pace(len(pcm) / 2 / self.sample_rate_hz)
        self._backend.heard.setdefault(self.device.device_id, bytearray()).extend(pcm)

    def room(self) -> float:
        return max(0.0, min(self.buffer, self.buffer - (self._due - time.monotonic())))

    def drop(self) -> None:
        self._due = time.monotonic()


def heard_by(session: Any) -> set[int]:
    """Return the samples that a bot has heard."""
    return set(struct.unpack(f"<{len(session.audio) // 2}h", session.audio))


class FakeWatch:
    """A watch of devices that are plugged in or out, whose changes the test reports by `on_change()`."""

    def __init__(self, on_change: Any, list_devices: Any, *_: Any) -> None:
        self.on_change, self.list_devices, self.closed = on_change, list_devices, False

    def close(self) -> None:
        self.closed = True


@contextlib.contextmanager
def watched() -> Iterator[list[FakeWatch]]:
    """Watch no device of a backend of the application in the block; yield the list that gets each watch."""
    watches: list[FakeWatch] = []

    def watch(*arguments: Any) -> FakeWatch:
        watches.append(FakeWatch(*arguments))
        return watches[-1]

    real, hotplug.DeviceWatch = hotplug.DeviceWatch, watch  # type: ignore[assignment, misc]
    try:
        yield watches
    finally:
        hotplug.DeviceWatch = real  # type: ignore[misc]


@contextlib.contextmanager
def machine_of(backend: FakeBackend) -> Iterator[None]:
    """Let a backend be the machine of all clients in the block."""
    real = getattr(media_module, name := "audio_backend")
    setattr(media_module, name, lambda _: backend)
    try:
        yield
    finally:
        setattr(media_module, name, real)
