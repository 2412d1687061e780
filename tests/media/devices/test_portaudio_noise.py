"""The libraries below PortAudio are kept from writing to standard error."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import pytest

from rtvi_sync.media.devices.portaudio_noise import silence
from tests.support.processes import run_python

pytestmark = [
    pytest.mark.inside,
    pytest.mark.skipif(sys.platform != "linux", reason="only there these libraries print"),
]


class Library:
    """A library that was loaded, and records the handlers that it is given."""

    def __init__(self, *functions: str) -> None:
        self.handlers: dict[str, Any] = {}
        for name in functions:
            setattr(self, name, lambda handler, name=name: self.handlers.update({name: handler}))


def test_each_loaded_library_gets_a_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is not loaded, and a function that it lacks, are passed over; the handler is a C function."""
    asound, portaudio = Library("snd_lib_error_set_handler"), Library()
    load = ctypes.CDLL

    def loaded(name: str | None, mode: int = 0) -> Any:
        if name is None:
            return load(None)
        assert mode & os.RTLD_NOLOAD
        if name == "libjack.so.0":
            raise OSError("it is not loaded")
        return asound if name == "libasound.so.2" else portaudio

    monkeypatch.setattr(ctypes, "CDLL", loaded)
    silence()
    assert set(asound.handlers) == {"snd_lib_error_set_handler"}
    assert isinstance(asound.handlers["snd_lib_error_set_handler"], ctypes.c_void_p)
    assert portaudio.handlers == {}


def test_nothing_is_loaded_for_it() -> None:
    """A process without these libraries is without them afterwards, too."""
    script = """
        from pathlib import Path
        from rtvi_sync.media.devices.portaudio_noise import silence

        silence()
        maps = Path("/proc/self/maps").read_text()
        print([name for name in ("libasound", "libjack", "libportaudio") if name in maps])
    """
    assert run_python(script) == (0, "[]\n", "")
