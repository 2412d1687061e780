"""A machine with a PyAudio or a sounddevice that says where the real one would crash."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rtvi_sync.media.devices import portaudio, pyaudio_binding, sounddevice_binding
from rtvi_sync.media.devices.audio_libraries import AUDIO_LIBRARIES
from rtvi_sync.media.devices.device_probe import describe
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend
from rtvi_sync.media.devices.probing import PortAudioDevice, parse_devices
from tests.support.fake_portaudio import FakeDevice, FakeMachine, Owner
from tests.support.stub import stub  # noqa: F401 - a fixture

pytestmark = pytest.mark.inside  # for `tools.kinds`: so is each test that uses these fixtures


@pytest.fixture(params=AUDIO_LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """Return each library for microphones and speakers in turn."""
    return str(request.param)


@pytest.fixture
def machine(library: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """Yield a machine with a microphone and a speaker, and check that nothing would have crashed it or is still
    open.
    """
    machine = FakeMachine(
        devices=[FakeDevice("desk", inputs=1), FakeDevice("box", outputs=2)],
        defaults={"audioinput": "desk", "audiooutput": "box"},
    )
    module = machine.module(library)
    monkeypatch.setitem(sys.modules, library, module)
    monkeypatch.setattr(sounddevice_binding, "load", lambda: module)
    monkeypatch.setattr(portaudio, "probe", lambda _: probed(machine, library))
    yield machine
    assert machine.crashes == []
    assert (machine.alive, machine.open_streams) == (0, [])


def probed(machine: FakeMachine, library: str) -> list[PortAudioDevice]:
    """Return the devices that another process would find."""
    elsewhere = FakeMachine(devices=machine.devices, defaults=machine.defaults, hosts=machine.hosts)
    binding: Any = pyaudio_binding if library == "pyaudio" else sounddevice_binding
    return parse_devices(describe(binding.Binding(elsewhere.module(library))))


@pytest.fixture
def audio(machine: FakeMachine, library: str) -> PortAudioBackend:
    return PortAudioBackend(library)


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.close()
