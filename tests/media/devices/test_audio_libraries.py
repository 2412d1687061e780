"""Which library drives microphones and speakers."""

from __future__ import annotations

import sys

import pytest

from rtvi_sync.media.devices import audio_libraries
from rtvi_sync.media.devices.audio_libraries import is_installed, preferred_library
from rtvi_sync.media.devices.backend import audio_backend
from rtvi_sync.media.devices.portaudio_backend import PortAudioBackend
from tests.support.fake_devices import FakeBackend

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("installed", "preferred"),
    [
        (["pyaudio", "sounddevice"], "pyaudio"),
        (["sounddevice"], "sounddevice"),
        (["pyaudio"], "pyaudio"),
        ([], "sounddevice"),
    ],
)
def test_what_is_installed_is_used(monkeypatch: pytest.MonkeyPatch, installed: list[str], preferred: str) -> None:
    """PyAudio is preferred if it is installed; if there is none, the library to install needs no compiler."""
    monkeypatch.setattr(audio_libraries, "is_installed", installed.__contains__)
    assert preferred_library() == preferred
    backend = audio_backend()
    assert isinstance(backend, PortAudioBackend)
    assert backend.library == preferred


@pytest.mark.parametrize("library", audio_libraries.AUDIO_LIBRARIES)
def test_a_choice_is_used(library: str) -> None:
    """Each library has one backend, and a backend of the application is used as it is."""
    backend = audio_backend(library)
    assert isinstance(backend, PortAudioBackend)
    assert backend.library == library
    assert audio_backend(library) is backend
    own = FakeBackend()
    assert audio_backend(own) is own


def test_a_module_that_is_imported_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported module counts as installed, from any source; one that cannot be found does not."""
    assert is_installed("json")
    assert not is_installed("module_that_is_nowhere")
    monkeypatch.setitem(sys.modules, "module_that_is_nowhere", sys)
    assert is_installed("module_that_is_nowhere")
