"""Errors of audio devices: their causes and their advice."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import audio_errors, portaudio, sounddevice_binding
from rtvi_sync.media.devices.audio_libraries import AUDIO_LIBRARIES
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend
from tests.support import limits
from tests.support.driven_device import DrivenDevice
from tests.support.fake_portaudio import FakeMachine
from tests.support.stub import Stub

pytestmark = pytest.mark.inside


def test_no_device_at_all(machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a speaker."""
    limits.patch(monkeypatch, alsa_devices=Path("/nonexistent"))
    machine.devices.clear()
    with pytest.raises(DeviceError, match="no speaker") as caught:
        audio.open_output(None, 24000, 0.04)
    assert caught.value.type == "not-found"


def test_devices_that_the_user_may_not_open(
    machine: FakeMachine, audio: PortAudioBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """PortAudio lists nothing then; the error says how to get the right."""
    tmp_path.joinpath("pcmC0D0c").touch()
    limits.patch(monkeypatch, alsa_devices=tmp_path)
    monkeypatch.setattr(os, "access", lambda *args: False)
    machine.devices.clear()
    with pytest.raises(DeviceError, match="usermod -aG audio") as caught:
        audio.open_input(None, 16000, 0.02)
    assert caught.value.type == "permissions"


@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (OSError(-9985, "PortAudioDevice unavailable"), "in-use", "End that program"),
        (OSError(-9996, "Invalid device"), "not-found", "Plug it in again"),
        (OSError(-9993, "Illegal combination of I/O devices"), "unknown", "plugged in"),
        (OSError(-9999, "Unanticipated host error"), "unknown", "plugged in"),
        (OSError("Stream not open"), "unknown", "plugged in"),
        (OSError(), "unknown", "plugged in"),
    ],
)
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_errors_of_opening(
    audio: PortAudioBackend,
    machine: FakeMachine,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    kind: str,
    advice: str,
    system: str,
) -> None:
    """Each number of PortAudio's is a type, with a next step, on every platform; nothing stays open."""
    monkeypatch.setattr(sys, "platform", system)
    machine.devices[0].error = error
    with pytest.raises(DeviceError, match=advice) as caught:
        audio.open_input(None, 16000, 0.02)
    assert (caught.value.type, caught.value.devices) == (kind, ("mic",))
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.args == error.args
    # The next attempt works if the device does.
    machine.devices[0].error = None
    audio.open_input(None, 16000, 0.02).close()


@pytest.mark.parametrize(
    ("library", "system", "release", "command"),
    [
        ("pyaudio", "linux", {"ID": "debian"}, r"sudo apt-get install -y gcc python3-dev portaudio19-dev"),
        ("pyaudio", "linux", {"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, r"sudo apt-get install"),
        ("pyaudio", "linux", {"ID": "fedora"}, r"sudo dnf install -y gcc python3-devel portaudio-devel"),
        ("pyaudio", "linux", {"ID": "rocky", "ID_LIKE": "rhel fedora"}, r"sudo dnf install"),
        ("pyaudio", "linux", {"ID": "arch"}, r"before that, run: sudo apt-get install.* or sudo dnf install"),
        ("pyaudio", "linux", None, r"before that, run: sudo apt-get install.* or sudo dnf install"),
        ("pyaudio", "darwin", None, r"before that, run: brew install portaudio"),
        ("pyaudio", "win32", None, r"winget install Python\.Python\.3\.13.*\[sounddevice\]"),
        ("sounddevice", "linux", {"ID": "debian"}, r"\(before that, run: sudo apt-get install -y libportaudio2\)"),
        ("sounddevice", "linux", {"ID": "fedora"}, r"\(before that, run: sudo dnf install -y portaudio\)"),
        ("sounddevice", "darwin", None, r"\[sounddevice\]"),
        ("sounddevice", "win32", None, r"\[sounddevice\]"),
    ],
)
def test_the_library_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, library: str, system: str, release: dict[str, str] | None, command: str
) -> None:
    """The error has the commands that install the library and its requirements on this platform."""

    def read_release() -> dict[str, str]:
        if release is None:
            raise FileNotFoundError
        return release

    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "freedesktop_os_release", read_release)
    monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    audio = PortAudioBackend(library)
    for call in (audio.devices, lambda: audio.open_input(None, 16000, 0.02)):
        with pytest.raises(MissingExtraError, match=command) as caught:
            call()
        assert caught.value.extra == AUDIO_LIBRARIES[library]


@pytest.mark.parametrize("there", [True, False])
def test_a_hint_at_jack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    """If JACK has a client registry, which may be corrupt, the error says so."""
    limits.patch(monkeypatch, jack_registries=tmp_path)
    if there:
        (tmp_path / f"jack_db-{os.getuid()}").mkdir()
    device = DrivenDevice("speaker", "default")
    assert ("jack_db" in str(audio_errors.no_answer())) is there
    with pytest.raises(DeviceError, match="does not answer") as caught:
        device.wait_opened(Deadline(0.0))
    assert ("jack_db" in str(caught.value)) is there
    with pytest.raises(DeviceError, match="failed: FileNotFoundError") as failed:
        device.call(lambda: os.stat(tmp_path / "nothing"))
    assert "jack_db" not in str(failed.value)


def test_the_library_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, library: str, stub: Stub) -> None:
    """A library whose system library is missing makes an error that names it, where no process could say so before."""
    stub.set(missing="PortAudio library not found")
    for name in AUDIO_LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(portaudio, "probe", lambda _: None)
    monkeypatch.setattr(sounddevice_binding, "load", sounddevice_binding.load.__wrapped__)  # it caches its module
    extra = AUDIO_LIBRARIES[library]
    with pytest.raises(MissingExtraError, match=rf"install .*\[{extra}\].*PortAudio library not found"):
        PortAudioBackend(library).open_input(None, 16000, 0.02)
