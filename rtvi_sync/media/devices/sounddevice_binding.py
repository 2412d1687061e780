"""PortAudio by sounddevice.

`device_probe` loads this file by its path, without the package, so it imports nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


@functools.cache
def load() -> Any:
    """Return a copy of the module `sounddevice` that the application does not share, with PortAudio not initialized.

    The module initializes PortAudio when it is imported, and terminates it when the process exits, which would crash
    one whose threads still use a stream. The application may import the module, too, and expects it initialized.

    Raises:
        ImportError: sounddevice, or PortAudio below it, is not installed.
        OSError: PortAudio fails to initialize.
    """
    spec = importlib.util.find_spec("sounddevice")
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sounddevice'")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:
        raise
    except OSError as error:  # "PortAudio library not found"
        raise ImportError(str(error)) from error
    except module.PortAudioError as error:
        raise OSError(str(error)) from error
    module._terminate()  # from now on its function for the exit has nothing to terminate
    return module


class SoundDeviceBinding:
    """An initialized PortAudio; implements `PortAudioBinding`.

    Args:
        sounddevice: see `load()`.
    """

    def __init__(self, sounddevice: Any) -> None:
        self._sounddevice = sounddevice
        # The module's own function would redirect the process's standard error during the call.
        self._call(lambda: self._sounddevice._check(self._sounddevice._lib.Pa_Initialize()))

    def terminate(self) -> None:
        """Terminate PortAudio. A second call would terminate it for another part of the application."""
        self._sounddevice._lib.Pa_Terminate()

    def hosts(self) -> list[str]:
        """Return the names of the host APIs, by their numbers."""
        return [host["name"] for host in self._call(self._sounddevice.query_hostapis)]

    def devices(self) -> list[dict[str, Any]]:
        """Return all devices; see `PortAudioBinding.devices()`."""
        found = []
        for index in range(sum(len(host["devices"]) for host in self._call(self._sounddevice.query_hostapis))):
            with contextlib.suppress(UnicodeError):  # sounddevice describes no device whose name it cannot decode
                device = self._call(self._sounddevice.query_devices, index)
                found.append(
                    {
                        "index": index,
                        "name": device["name"],
                        "host": device["hostapi"],
                        "inputs": device["max_input_channels"],
                        "outputs": device["max_output_channels"],
                        "rate_hz": device["default_samplerate"],
                    }
                )
        return found

    def defaults(self) -> tuple[int | None, int | None]:
        """Return the indices of the default microphone and speaker."""
        mic, speaker = (None if index < 0 else index for index in self._sounddevice.default.device)
        return mic, speaker

    def open_input(self, index: int, rate: int, channels: int, frames: int) -> SoundDeviceStream:
        """Open a microphone; see `PortAudioBinding.open_input()`."""
        return self._open(self._sounddevice.RawInputStream, index, rate, channels, frames)

    def open_output(self, index: int, rate: int, channels: int, frames: int) -> SoundDeviceStream:
        """Open a speaker; see `PortAudioBinding.open_input()`."""
        return self._open(self._sounddevice.RawOutputStream, index, rate, channels, frames)

    def _open(self, kind: Any, index: int, rate: int, channels: int, frames: int) -> SoundDeviceStream:
        stream = self._call(
            # The low latency, as PyAudio requests it: the device's buffer then holds three periods.
            lambda: kind(
                device=index, samplerate=rate, channels=channels, blocksize=frames, dtype="int16", latency="low"
            )
        )
        try:
            self._call(stream.start)
        except OSError:
            stream.close()
            raise
        return SoundDeviceStream(stream, self._call)

    def _call(self, function: Callable[..., T], *args: object) -> T:
        """Call a function of the module; its errors become PyAudio's."""
        try:
            return function(*args)
        except self._sounddevice.PortAudioError as error:
            raise OSError(*reversed(error.args[:2])) from error  # code and text


class SoundDeviceStream:
    """An open stream; implements `PortAudioStream`.

    Args:
        stream: stream of the module.
        call: calls a function of the module.
    """

    def __init__(self, stream: Any, call: Callable[..., Any]) -> None:
        self._stream = stream
        self._call = call

    def read(self, frames: int) -> bytes:
        """Wait for `frames` frames and return them."""
        pcm, _overflowed = self._call(self._stream.read, frames)
        return bytes(pcm)

    def write(self, pcm: bytes, frames: int) -> None:  # noqa: ARG002 - as many as there are
        """Wait for room and write."""
        self._call(self._stream.write, pcm)

    def read_available(self) -> int:
        """Return how many frames can be read without blocking."""
        return int(self._call(lambda: self._stream.read_available))

    def write_available(self) -> int:
        """Return how many frames can be written without blocking."""
        return int(self._call(lambda: self._stream.write_available))

    def restart(self) -> None:
        """Drop the content of the buffer."""
        self._call(self._stream.abort, False)
        self._call(self._stream.start)

    def close(self) -> None:
        """Close the device."""
        self._stream.close()


Binding = SoundDeviceBinding
