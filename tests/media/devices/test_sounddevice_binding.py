"""Functions that only sounddevice needs; the tests of the backend run with each library."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rtvi_sync.media.devices import sounddevice_binding
from rtvi_sync.media.devices.audio_libraries import is_installed
from rtvi_sync.media.devices.sounddevice_binding import Binding
from tests.support.fake_portaudio import FakeDevice, FakeMachine
from tests.support.processes import run_python

pytestmark = pytest.mark.inside

# A module that counts how often PortAudio is initialized, as the real one does.
_MODULE = """
import atexit

class PortAudioError(Exception):
    pass

initialized = 1

def _terminate():
    global initialized
    initialized -= 1
{}
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Return a function that loads a `sounddevice` with some more code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "sounddevice", None)  # so that a module imported by a test is forgotten after it
    monkeypatch.delitem(sys.modules, "sounddevice")

    def load(code: str = "") -> object:
        tmp_path.joinpath("sounddevice.py").write_text(_MODULE.format(code))
        return sounddevice_binding.load.__wrapped__()

    return load


def test_the_applications_module_is_its_own(load: Callable[..., object]) -> None:
    """The application's module is initialized whenever the application imports it; the package uses another copy."""
    ours = load()
    theirs = importlib.import_module("sounddevice")
    assert theirs is not ours
    assert (vars(theirs)["initialized"], vars(ours)["initialized"]) == (1, 0)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise OSError('PortAudio library not found')", ImportError),
        ("import _cffi_that_is_missing", ImportError),
        ("raise PortAudioError('Error initializing PortAudio', -9999)", OSError),
    ],
)
def test_what_fails(load: Callable[..., object], code: str, error: type[Exception]) -> None:
    """A missing package is an ImportError, and a PortAudio that fails an OSError."""
    with pytest.raises(error, match=r"PortAudio|missing"):
        load(code)


def test_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If sounddevice is not installed, load() raises ImportError."""
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(ImportError, match="sounddevice"):
        sounddevice_binding.load.__wrapped__()


def test_a_name_that_cannot_be_decoded() -> None:
    """The device is left out; the others are listed, with their own numbers."""
    machine = FakeMachine(devices=[FakeDevice(b"ear \xff", inputs=1), FakeDevice("desk", inputs=1)])
    devices = Binding(machine.module("sounddevice")).devices()
    assert [(device["index"], device["name"]) for device in devices] == [(1, "desk")]


def test_the_real_module_leaves_nothing_to_the_exit() -> None:
    """With the real one PortAudio is initialized once for each binding, and nothing is printed."""
    if not is_installed("sounddevice"):
        pytest.skip("sounddevice is not installed")
    script = """
        from rtvi_sync.media.devices.portaudio import silence_libraries
        from rtvi_sync.media.devices.sounddevice_binding import Binding, load

        module = load()
        silence_libraries()
        binding = Binding(module)
        print(module._initialized, binding.devices(), binding.defaults())
        binding.terminate()
    """
    assert run_python(script) == (0, "0 [] (None, None)\n", "")
