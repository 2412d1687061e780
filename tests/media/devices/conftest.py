"""A machine with a PyAudio that says where the real one would crash."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from rtvi_sync.media.devices import portaudio
from rtvi_sync.media.devices.device_probe import describe
from rtvi_sync.media.devices.probing import PortAudioDevice, parse_devices
from rtvi_sync.media.devices.pyaudio_backend import PyAudioBackend
from tests.support.fake_pyaudio import FakeDevice, FakeMachine, FakePyAudio, Owner
from tests.support.stub import stub  # noqa: F401 - a fixture


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """Yield a machine with a microphone and a speaker; nothing that would have crashed it may happen or stay begun."""
    machine = FakeMachine(
        devices=[FakeDevice("desk", inputs=1), FakeDevice("box", outputs=2)],
        defaults={"audioinput": "desk", "audiooutput": "box"},
    )
    monkeypatch.setitem(sys.modules, "pyaudio", machine.module)
    monkeypatch.setattr(portaudio, "probe", lambda: probed(machine))
    yield machine
    assert machine.crashes == []
    assert (machine.alive, machine.open_streams) == (0, [])


def probed(machine: FakeMachine) -> list[PortAudioDevice]:
    """Return what another process would find."""
    elsewhere = FakeMachine(devices=machine.devices, defaults=machine.defaults, hosts=machine.hosts)
    return parse_devices(describe(FakePyAudio(elsewhere)))


@pytest.fixture
def audio(machine: FakeMachine) -> PyAudioBackend:
    return PyAudioBackend()


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.close()
