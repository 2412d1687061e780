"""The `sounddevice` that processes import which list the devices for tests, by the stub of `pyaudio` beside it.

Not imported by tests: they copy it to a folder of their own.
"""

from __future__ import annotations

import types
from typing import Any

try:
    import pyaudio
except ImportError as error:
    raise OSError(str(error)) from error


class PortAudioError(Exception):
    pass


class _Library:
    """PortAudio, as sounddevice loads it."""

    audio: Any = None

    def Pa_Initialize(self) -> int:
        try:
            self.audio = pyaudio.PyAudio()
        except OSError as error:
            raise PortAudioError(*reversed(error.args)) from None
        return 0

    def Pa_Terminate(self) -> int:
        return 0


_lib = _Library()


def _check(result: int) -> int:
    return result


def _terminate() -> None:
    pass


def query_hostapis() -> tuple[dict[str, Any], ...]:
    return ({"name": "ALSA", "devices": range(_lib.audio.get_device_count())},)


def query_devices(index: int) -> dict[str, Any]:
    info = _lib.audio.get_device_info_by_index(index)
    channels = {"max_input_channels": 1, "max_output_channels": 0}
    return {"index": index, "name": info["name"], "hostapi": 0, "default_samplerate": 44100.0, **channels}


default = types.SimpleNamespace(device=(0, -1))
