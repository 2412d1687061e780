"""PortAudio by PyAudio.

`device_probe` loads this file by its path, without the package, so it imports nothing of it.
"""

from __future__ import annotations

import contextlib
import importlib
import locale
from typing import Any


def load() -> Any:
    """Return the module `pyaudio`.

    Raises:
        ImportError: PyAudio, or PortAudio below it, is not installed.
    """
    # Where PortAudio is missing, PyAudio prints a message; but a probing process has found that out before.
    return importlib.import_module("pyaudio")


class PyAudioBinding:
    """An initialized PortAudio; implements `PortAudioBinding`.

    Args:
        pyaudio: see `load()`.
    """

    def __init__(self, pyaudio: Any) -> None:
        self._pyaudio = pyaudio
        self._audio = self._pyaudio.PyAudio()

    def terminate(self) -> None:
        """Terminate PortAudio. A second call would terminate it for another part of the application."""
        self._audio.terminate()

    def hosts(self) -> list[str]:
        """Return the names of the host APIs, by their numbers."""
        audio = self._audio
        return [audio.get_host_api_info_by_index(number)["name"] for number in range(audio.get_host_api_count())]

    def devices(self) -> list[dict[str, Any]]:
        """Return all devices; see `PortAudioBinding.devices()`."""
        audio = self._audio
        return [
            {
                "index": index,
                "name": _text(device["name"]),
                "host": device["hostApi"],
                "inputs": device["maxInputChannels"],
                "outputs": device["maxOutputChannels"],
                "rate_hz": device["defaultSampleRate"],
            }
            for index in range(audio.get_device_count())
            for device in [audio.get_device_info_by_index(index)]
        ]

    def defaults(self) -> tuple[int | None, int | None]:
        """Return the indices of the default microphone and speaker."""
        found: list[int | None] = [None, None]
        for number, get in enumerate(
            (self._audio.get_default_input_device_info, self._audio.get_default_output_device_info)
        ):
            with contextlib.suppress(OSError):  # there is no default
                found[number] = int(get()["index"])
        return found[0], found[1]

    def open_input(self, index: int, rate: int, channels: int, frames: int) -> PyAudioStream:
        """Open a microphone; see `PortAudioBinding.open_input()`."""
        return self._open(rate, channels, frames, input=True, input_device_index=index)

    def open_output(self, index: int, rate: int, channels: int, frames: int) -> PyAudioStream:
        """Open a speaker; see `PortAudioBinding.open_input()`."""
        return self._open(rate, channels, frames, output=True, output_device_index=index)

    def _open(self, rate: int, channels: int, frames: int, **device: Any) -> PyAudioStream:
        sample_format = self._pyaudio.paInt16
        stream = self._audio.open(
            rate=rate, channels=channels, format=sample_format, frames_per_buffer=frames, **device
        )
        return PyAudioStream(stream, self._pyaudio.pa)


class PyAudioStream:
    """An open stream; implements `PortAudioStream`."""

    def __init__(self, stream: Any, pa: Any) -> None:
        self._stream = stream
        self._pa = pa

    def read(self, frames: int) -> bytes:
        """Wait for `frames` frames and return them."""
        # An overflow must not raise, because an error would close the stream; the lost audio is lost anyway.
        pcm: bytes = self._stream.read(frames, exception_on_overflow=False)
        return pcm

    def write(self, pcm: bytes, frames: int) -> None:
        """Wait for room and write."""
        # PyAudio reads this number of frames from memory, whatever the length of the bytes.
        self._stream.write(pcm, frames)

    def read_available(self) -> int:
        """Return how many frames can be read without blocking."""
        return int(self._stream.get_read_available())

    def write_available(self) -> int:
        """Return how many frames can be written without blocking."""
        return int(self._stream.get_write_available())

    def restart(self) -> None:
        """Drop the content of the buffer."""
        # PyAudio has no method to abort: `stop_stream()` plays the buffer to its end, except on ALSA.
        self._pa.abort_stream(self._stream._stream)
        self._pa.start_stream(self._stream._stream)

    def close(self) -> None:
        """Close the device."""
        self._stream.close()


def _text(name: str | bytes) -> str:
    """Decode a name as UTF-8, as PortAudio encodes it; PyAudio decodes it by the locale's encoding if that works."""
    try:
        raw = name if isinstance(name, bytes) else name.encode(locale.getpreferredencoding(False))
        return raw.decode()
    except UnicodeError:
        return name.decode(errors="replace") if isinstance(name, bytes) else name


Binding = PyAudioBinding
