"""The list of devices, and the script that makes it in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rtvi_sync.errors import DeviceError
from rtvi_sync.media.devices import probing
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend
from tests.support.fake_portaudio import FakeDevice, FakeMachine
from tests.support.stub import Stub, is_alive
from tests.support.waiting import until

pytestmark = pytest.mark.inside

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="it looks at processes as Linux shows them")


def test_devices_have_stable_ids(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Host API and name; a number for the second of a name; a headset is in both lists."""
    machine.devices += [FakeDevice("headset", inputs=1, outputs=2), FakeDevice("desk", inputs=2)]
    assert [(info.kind, info.device_id, info.label) for info in audio.devices()] == [
        ("audioinput", "ALSA/desk", "desk"),
        ("audioinput", "ALSA/headset", "headset"),
        ("audioinput", "ALSA/desk#2", "desk"),
        ("audiooutput", "ALSA/box", "box"),
        ("audiooutput", "ALSA/headset", "headset"),
    ]


def test_devices_that_take_no_blocking_calls_are_not_listed(machine: FakeMachine, audio: PortAudioBackend) -> None:
    """Devices of the host API WDM-KS, which take no blocking calls, are not listed."""
    machine.devices = [FakeDevice("line", inputs=2, host=1)]
    assert audio.devices() == []


@on_linux
def test_a_process_that_hangs_ends_itself(library: str, stub: Stub) -> None:
    """The process ends itself at its limit, because its parent may have ended."""
    stub.set(hang=True)
    program = f"""
import sys
from rtvi_sync.media.devices import device_probe
device_probe.LIMIT = 0.3
device_probe.main({library!r}, "always", {json.dumps(json.dumps(sys.path))})
"""
    prober = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert probing.request_devices(prober) == b""
    with pytest.raises(DeviceError, match="does not answer"):
        probing.parse_answer(library, prober, b"")
    probing.end_process(prober)


@on_linux
def test_it_ends_with_the_process_that_asks(library: str, stub: Stub) -> None:
    """The process that lists devices ends with the one that asks, even if that is killed."""
    program = f"""
import sys
sys.path[:] = {sys.path!r}
from rtvi_sync.media.devices import probing
prober = probing.start_process({library!r}, "always")
probing.request_devices(prober)
print(prober.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    until(lambda: not is_alive(pid), "it goes on")
