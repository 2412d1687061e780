"""Microphones and speakers of this machine, by PyAudio.

PyAudio's faults end processes, and so none of them may be met: a stream is used by the one thread that opened it
(closing one that another thread reads crashes), in blocking mode; devices are known by name, and their index is looked
up right before each opening (one that does not exist crashes); each call says how much it means (PyAudio believes it).
"""

from __future__ import annotations

import array
import functools
import importlib
from collections.abc import Callable
from typing import Any

from ...concurrency.shield import shielded
from ...errors import DeviceError, MissingExtraError
from .. import pcm as pcm_tools
from ..base import MediaDeviceInfo
from ..resample import Resampler
from .audio_errors import failed
from .portaudio import PortAudio
from .probing import PortAudioDevice

# What PortAudio says when a device does not take a sample rate, a number of channels, or 16 bits.
_REFUSALS = {-9997, -9998, -9994}


class PyAudioBackend:
    """Implements `AudioBackend`. There is one per process, as there is one PortAudio: `backend()`."""

    def __init__(self) -> None:
        self._portaudio = PortAudio()

    def devices(self) -> list[MediaDeviceInfo]:
        """See `AudioBackend.devices()`. Their ids are "<host API>/<name>", such as "ALSA/default"."""
        return [device.info for device in shielded(self._portaudio.devices)]

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> PyAudioInput:
        """See `AudioBackend.open_input()`. Without soxr a device that refuses the rate is read at its own."""
        return PyAudioInput(self._portaudio, device_id, sample_rate_hz, period)

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> PyAudioOutput:
        """See `AudioBackend.open_output()`. The device's buffer holds three periods."""
        return PyAudioOutput(self._portaudio, device_id, sample_rate_hz, period)

    def with_open(self, devices: list[PortAudioDevice]) -> list[MediaDeviceInfo]:
        """A list from another process, with what is open in this one and may be hidden from others by that."""
        return [device.info for device in self._portaudio.with_open(devices)]


@functools.cache
def backend() -> PyAudioBackend:
    """The backend of this process. Does nothing yet: PyAudio is imported at its first use."""
    return PyAudioBackend()


class _Stream:
    """What microphones and speakers have in common. Everything is called on the thread that opened it."""

    _kind: str
    # The names of PyAudio's arguments.
    _direction: str

    device: MediaDeviceInfo
    sample_rate_hz: int

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        self._portaudio = portaudio
        self._wanted_hz = pcm_tools.check_rate(sample_rate_hz)
        self._period = period
        self._stream: Any = None
        self._channels = 1
        self._device_hz = sample_rate_hz
        self._resampler: Resampler | None = None
        self._broken = False
        self._enter(device_id)

    def close(self) -> None:
        """Free the device. Never raises; may be called again."""
        self._portaudio.leave(self, broken=self._broken)

    def open(self, audio: Any, device: PortAudioDevice) -> None:
        """Called by `PortAudio`: open the device as wanted, or in a way that it takes."""
        refusal: OSError | None = None
        rates = dict.fromkeys(
            (self._wanted_hz, device.rate_hz if pcm_tools.is_rate(device.rate_hz) else self._wanted_hz)
        )
        for rate in rates:
            resampler = self._resampler_for(rate)
            for channels in range(1, min(2, device.channels) + 1):
                try:
                    self._stream = audio.open(
                        rate=rate,
                        channels=channels,
                        format=_pyaudio().paInt16,
                        frames_per_buffer=round(self._period * rate),
                        **{self._direction: True, f"{self._direction}_device_index": device.index},
                    )
                except OSError as error:
                    if not error.args or error.args[0] not in _REFUSALS:
                        raise
                    refusal = error
                else:
                    self._channels, self._device_hz, self._resampler = channels, rate, resampler
                    return
        assert refusal is not None  # every device has a channel
        raise refusal

    def shut(self) -> None:
        """Called by `PortAudio`: close what is open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _resampler_for(self, rate: int) -> Resampler | None:
        """What converts between the wanted rate and the device's."""
        raise NotImplementedError

    def _enter(self, device_id: str | None) -> None:
        self.device = self._portaudio.enter(self, self._kind, device_id).info

    def _failed(self, error: OSError) -> DeviceError:
        self._broken = True
        return failed(error, self.device)


class PyAudioInput(_Stream):
    """An open microphone; implements `InputStream`."""

    _kind = "audioinput"
    _direction = "input"

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        self._ready = b""
        super().__init__(portaudio, device_id, sample_rate_hz, period)

    def read(self) -> bytes:
        """See `InputStream.read()`."""
        if self._portaudio.make_way(self):
            self._enter(self.device.device_id)
        wanted = 2 * round(self._period * self.sample_rate_hz)
        while len(self._ready) < wanted:
            try:
                # An overflow is no error: what it lost is lost, and an error would close the stream.
                pcm = self._stream.read(round(self._period * self._device_hz), exception_on_overflow=False)
            except OSError as error:
                raise self._failed(error) from error
            pcm = pcm_tools.to_mono(pcm, self._channels)
            self._ready += self._resampler.convert(pcm) if self._resampler is not None else pcm
        pcm, self._ready = self._ready[:wanted], self._ready[wanted:]
        return pcm

    def backlog(self) -> float:
        """See `InputStream.backlog()`. Never more than the device's buffer holds."""
        return (
            _available(self._stream.get_read_available) / self._device_hz + len(self._ready) / 2 / self.sample_rate_hz
        )

    def open(self, audio: Any, device: PortAudioDevice) -> None:
        """See `_Stream.open()`."""
        super().open(audio, device)
        self.sample_rate_hz: int = self._wanted_hz if self._resampler is not None else self._device_hz

    def _resampler_for(self, rate: int) -> Resampler | None:
        if rate == self._wanted_hz:
            return None
        try:
            return Resampler(rate, self._wanted_hz)
        except MissingExtraError:
            return None  # bots take any rate


class PyAudioOutput(_Stream):
    """An open speaker; implements `OutputStream`."""

    _kind = "audiooutput"
    _direction = "output"

    buffer: float

    def __init__(self, portaudio: PortAudio, device_id: str | None, sample_rate_hz: int, period: float) -> None:
        # What was written last, as much as the device's buffer holds, and what of it was lost when it was closed.
        self._written = self._unheard = b""
        self._buffer_frames = 0
        super().__init__(portaudio, device_id, sample_rate_hz, period)

    def write(self, pcm: bytes) -> None:
        """See `OutputStream.write()`."""
        if self._portaudio.make_way(self):
            self._enter(self.device.device_id)
            self._put(self._unheard)
        self._put(self._resampler.convert(pcm) if self._resampler is not None else pcm)

    def _put(self, pcm: bytes) -> None:
        pcm = bytes(pcm)  # PyAudio takes nothing else, but for str
        frames = len(pcm) // 2
        if not frames:
            return
        try:
            # The number counts, whatever there is in memory.
            self._stream.write(_doubled(pcm) if self._channels == 2 else pcm, frames)
        except OSError as error:
            raise self._failed(error) from error
        self._written = (self._written + pcm)[-2 * self._buffer_frames :]

    def room(self) -> float:
        """See `OutputStream.room()`."""
        return _available(self._stream.get_write_available) / self._device_hz

    def drop(self) -> None:
        """See `OutputStream.drop()`."""
        if self._resampler is not None:
            self._resampler.reset()
        # PyAudio has no method for it: `stop_stream()` lets the device play what it has, but on ALSA.
        pa = _pyaudio().pa
        try:
            pa.abort_stream(self._stream._stream)
            pa.start_stream(self._stream._stream)
        except OSError as error:
            raise self._failed(error) from error

    def open(self, audio: Any, device: PortAudioDevice) -> None:
        """See `_Stream.open()`."""
        super().open(audio, device)
        self.sample_rate_hz: int = self._wanted_hz
        self._buffer_frames = _available(self._stream.get_write_available)  # now that nothing is in it
        self.buffer = self._buffer_frames / self._device_hz

    def shut(self) -> None:
        """See `_Stream.shut()`."""
        if self._stream is not None:
            queued = self._buffer_frames - _available(self._stream.get_write_available)
            self._unheard = self._written[-2 * queued :] if queued > 0 else b""
        super().shut()

    def _resampler_for(self, rate: int) -> Resampler | None:
        return Resampler(self._wanted_hz, rate) if rate != self._wanted_hz else None


def _available(count: Callable[[], int]) -> int:
    """Samples that the device has, or takes, at once; 0 where it failed, as the next read or write will say."""
    try:
        return max(0, count())
    except OSError:
        return 0


def _doubled(pcm: bytes) -> bytes:
    """Two channels with the same in them."""
    samples = array.array("h", pcm[: len(pcm) - len(pcm) % 2])
    both = array.array("h", bytes(4 * len(samples)))
    both[0::2] = both[1::2] = samples
    return both.tobytes()


def _pyaudio() -> Any:
    return importlib.import_module("pyaudio")
