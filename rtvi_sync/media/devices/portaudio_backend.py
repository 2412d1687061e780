"""Microphones and speakers of this machine, by PortAudio, which PyAudio or sounddevice binds to Python.

Some misuses crash PortAudio or PyAudio, and the process with it, so this module avoids them: only the thread that
opened a stream uses it, in blocking mode (closing a stream that another thread reads crashes); devices are identified
by name, and their index is looked up right before each open (an index that does not exist crashes); each call passes
the exact number of frames (PyAudio does not check it).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...concurrency.shield import shielded
from ...errors import DeviceError, MissingExtraError
from .. import pcm as pcm_tools
from ..base import MediaDeviceInfo
from ..resample import Resampler
from .audio_errors import failed
from .portaudio import PortAudio, PortAudioBinding
from .probing import PortAudioDevice, Prober

# Error codes of PortAudio for an unsupported sample rate, number of channels, or sample format.
_REFUSALS = {-9997, -9998, -9994}


class PortAudioBackend:
    """Implementation of `AudioBackend`. There is one per process and library: `backend()`.

    Args:
        library: "pyaudio" or "sounddevice"; imported at its first use.
    """

    def __init__(self, library: str) -> None:
        self.library: str = library
        self._portaudio = PortAudio(library)

    def devices(self) -> list[MediaDeviceInfo]:
        """Return all devices; see `AudioBackend.devices()`. Their ids are "<host API>/<name>": "ALSA/default"."""
        return [device.info for device in shielded(self._portaudio.devices)]

    def prober(self) -> Prober:
        """Return the function that lists the devices again and again; it equals the others of this backend."""
        return Prober(self.library, self._portaudio.add_open_devices)

    def failure_of(self, error: DeviceError, info: MediaDeviceInfo) -> DeviceError:
        """Return why an open device failed; see `PortAudio.failure_of()`."""
        return self._portaudio.failure_of(error, info)

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> PortAudioInput:
        """Open a microphone; see `AudioBackend.open_input()`.

        Without soxr a device that refuses the rate is read at its own.
        """
        return PortAudioInput(self._portaudio, device_id, sample_rate_hz, period)

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> PortAudioOutput:
        """Open a speaker; see `AudioBackend.open_output()`. The device's buffer holds three periods."""
        return PortAudioOutput(self._portaudio, device_id, sample_rate_hz, period)


@functools.cache
def backend(library: str) -> PortAudioBackend:
    """Return the backend of this process for "pyaudio" or "sounddevice"."""
    return PortAudioBackend(library)


class DeviceStream:
    """Common base of open microphones and speakers.

    All methods are called on the thread that opened the stream; `open_device()` and `close_device()` by `PortAudio`,
    under its lock.
    """

    _kind: str

    device: MediaDeviceInfo
    sample_rate_hz: int

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        self._portaudio = portaudio
        self._stream: Any = None  # a `PortAudioStream`, while the device is open
        self._requested_hz = pcm_tools.check_rate(sample_rate_hz)
        self._period = period
        self._channels = 1
        self._device_hz = sample_rate_hz
        self._resampler: Resampler | None = None
        self._broken = False
        self._open(device_id)

    def close(self) -> None:
        """Close the device. Never raises; idempotent."""
        self._portaudio.close_stream(self, broken=self._broken)

    def open_device(self, audio: PortAudioBinding, device: PortAudioDevice) -> None:
        """Open the device at the requested rate, or in a format that it takes. Called by `PortAudio`."""
        open_stream = audio.open_input if self._kind == "audioinput" else audio.open_output
        refusal: OSError | None = None
        rates = dict.fromkeys(
            (self._requested_hz, device.rate_hz if pcm_tools.is_rate(device.rate_hz) else self._requested_hz)
        )
        for rate in rates:
            resampler = self._resampler_for(rate)
            for channels in range(1, min(2, device.channels) + 1):
                try:
                    self._stream = open_stream(device.index, rate, channels, round(self._period * rate))
                except OSError as error:
                    if not error.args or error.args[0] not in _REFUSALS:
                        raise
                    refusal = error
                else:
                    self._channels, self._device_hz, self._resampler = channels, rate, resampler
                    return
        assert refusal is not None  # every device has a channel
        raise refusal

    def close_device(self) -> None:
        """Close the device. Called by `PortAudio`."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _resampler_for(self, rate: int) -> Resampler | None:
        """Return a converter between the requested rate and the device's, if needed and available."""
        raise NotImplementedError

    def _open(self, device_id: str | None) -> None:
        self.device = self._portaudio.open_stream(self, self._kind, device_id).info

    def _failed(self, error: OSError) -> DeviceError:
        self._broken = True
        return failed(error, self.device)


class PortAudioInput(DeviceStream):
    """An open microphone; implements `InputStream`."""

    _kind = "audioinput"

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        self._ready = b""
        super().__init__(portaudio, device_id, sample_rate_hz, period)

    def read(self) -> bytes:
        """Read one period; see `InputStream.read()`."""
        if self._portaudio.close_for_restart(self):
            self._open(self.device.device_id)
        wanted = 2 * round(self._period * self.sample_rate_hz)
        while len(self._ready) < wanted:
            try:
                pcm = self._stream.read(round(self._period * self._device_hz))
            except OSError as error:
                raise self._failed(error) from error
            pcm = pcm_tools.to_mono(pcm, self._channels)
            self._ready += self._resampler.convert(pcm) if self._resampler is not None else pcm
        pcm, self._ready = self._ready[:wanted], self._ready[wanted:]
        return pcm

    def backlog(self) -> float:
        """Return the unread audio; see `InputStream.backlog()`. Never more than the device's buffer holds."""
        return _available(self._stream.read_available) / self._device_hz + len(self._ready) / 2 / self.sample_rate_hz

    def open_device(self, audio: PortAudioBinding, device: PortAudioDevice) -> None:
        """Open the device, and set `sample_rate_hz`. Called by `PortAudio`."""
        super().open_device(audio, device)
        self.sample_rate_hz: int = self._requested_hz if self._resampler is not None else self._device_hz

    def _resampler_for(self, rate: int) -> Resampler | None:
        if rate == self._requested_hz:
            return None
        try:
            return Resampler(rate, self._requested_hz)
        except MissingExtraError:
            return None  # bots take any rate


class PortAudioOutput(DeviceStream):
    """An open speaker; implements `OutputStream`."""

    _kind = "audiooutput"

    buffer: float

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        # The latest written audio, as much as the device's buffer holds, and the part of it that closing dropped.
        self._written = self._unplayed = b""
        self._buffer_frames = 0
        super().__init__(portaudio, device_id, sample_rate_hz, period)

    def write(self, pcm: bytes) -> None:
        """Write audio; see `OutputStream.write()`."""
        if self._portaudio.close_for_restart(self):
            self._open(self.device.device_id)
            self._write_frames(self._unplayed)
        self._write_frames(self._resampler.convert(pcm) if self._resampler is not None else pcm)

    def _write_frames(self, pcm: bytes) -> None:
        pcm = bytes(pcm)  # PyAudio takes only bytes and str
        frames = len(pcm) // 2
        if not frames:
            return
        try:
            self._stream.write(pcm_tools.to_stereo(pcm) if self._channels == 2 else pcm, frames)
        except OSError as error:
            raise self._failed(error) from error
        self._written = (self._written + pcm)[-2 * self._buffer_frames :]

    def room(self) -> float:
        """Return the free space; see `OutputStream.room()`."""
        return _available(self._stream.write_available) / self._device_hz

    def drop(self) -> None:
        """Drop unplayed audio; see `OutputStream.drop()`."""
        if self._resampler is not None:
            self._resampler.reset()
        try:
            self._stream.restart()
        except OSError as error:
            raise self._failed(error) from error

    def open_device(self, audio: PortAudioBinding, device: PortAudioDevice) -> None:
        """Open the device, and set `sample_rate_hz` and `buffer`. Called by `PortAudio`."""
        super().open_device(audio, device)
        self.sample_rate_hz: int = self._requested_hz
        self._buffer_frames = _available(self._stream.write_available)  # the buffer is empty now
        self.buffer = self._buffer_frames / self._device_hz

    def close_device(self) -> None:
        """Close the device, and keep the audio that it has not played. Called by `PortAudio`."""
        if self._stream is not None:
            queued = self._buffer_frames - _available(self._stream.write_available)
            self._unplayed = self._written[-2 * queued :] if queued > 0 else b""
        super().close_device()

    def _resampler_for(self, rate: int) -> Resampler | None:
        return Resampler(self._requested_hz, rate) if rate != self._requested_hz else None


def _available(count: Callable[[], int]) -> int:
    """Return how many samples can be read or written without blocking; 0 if the device failed, since the next read or
    write raises."""
    try:
        return max(0, count())
    except OSError:
        return 0
