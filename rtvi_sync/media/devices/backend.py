"""Protocols for the libraries that drive the devices of this machine, and the choice of the one for audio."""

from __future__ import annotations

from typing import Protocol

from ...errors import DeviceError
from ..base import MediaDeviceInfo, VideoFrame
from .audio_libraries import preferred_library


class InputStream(Protocol):
    """An open microphone. All methods are called on the thread that opened it.

    Attributes:
        device: the opened device; for the system's default, the device that is the default now.
        sample_rate_hz: sample rate of the audio that `read()` returns.
    """

    device: MediaDeviceInfo
    sample_rate_hz: int

    def read(self) -> bytes:
        """Wait for the next period and return it: mono, with the number of samples requested when it was opened.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def backlog(self) -> float:
        """Return the seconds of recorded audio that have not been read yet."""

    def close(self) -> None:
        """Close the device. Never raises."""


class OutputStream(Protocol):
    """An open speaker. All methods are called on the thread that opened it.

    Attributes:
        device: the opened device; for the system's default, the device that is the default now.
        sample_rate_hz: sample rate of the audio that `write()` takes.
        buffer: capacity of the device's buffer, in seconds of audio.
    """

    device: MediaDeviceInfo
    sample_rate_hz: int
    buffer: float

    def write(self, pcm: bytes) -> None:
        """Write mono samples to the device's buffer; block until there is room.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def room(self) -> float:
        """Return the seconds of audio that `write()` takes without blocking."""

    def drop(self) -> None:
        """Drop the audio that was written and not played yet; `write()` may follow.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def close(self) -> None:
        """Close the device; audio that was not played yet is lost. Never raises."""


class AudioBackend(Protocol):
    """The microphones and speakers of this machine. Thread-safe."""

    def devices(self) -> list[MediaDeviceInfo]:
        """Return the microphones and speakers that exist now. Blocks for about 50 ms, 5 s at most.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: the machine's audio system does not answer.
        """

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> InputStream:
        """Open a microphone.

        Args:
            device_id: id of the device; None: the system's default.
            sample_rate_hz: requested sample rate. Audio is converted only if the device refuses the rate.
            period: seconds of audio that each `read()` returns.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: there is no such device ("not-found"), another program has it ("in-use"), this user may not
                have it ("permissions"), or something else ("unknown").
        """

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> OutputStream:
        """Open a speaker.

        Args:
            device_id, sample_rate_hz: see `open_input()`.
            period: a third of the capacity of the device's buffer, in seconds of audio.

        Raises:
            MissingExtraError, DeviceError: see `open_input()`.
        """


def audio_backend(choice: str | AudioBackend | None = None) -> AudioBackend:
    """Return the backend for an application's choice.

    Never raises: the library itself is imported at its first use. Called only when a device is needed, because
    importing the backend loads everything that PortAudio needs.

    Args:
        choice: a library, or a backend of the application's; None: the first library that is installed.
    """
    if choice is not None and not isinstance(choice, str):
        return choice
    from .portaudio_backend import backend

    return backend(choice or preferred_library())


def failure_of(backend: AudioBackend, error: DeviceError, info: MediaDeviceInfo) -> DeviceError:
    """Return why an open device failed, once its stream is closed. May block, as `AudioBackend.devices()` does.

    Args:
        backend: the backend that opened the device.
        error: the error that its stream has raised.
        info: the device.
    """
    from .portaudio_backend import PortAudioBackend

    # A backend of the application says itself that a device is gone.
    return backend.failure_of(error, info) if isinstance(backend, PortAudioBackend) else error


def cameras() -> list[MediaDeviceInfo]:
    """Return the cameras of this machine by OpenCV; see `CameraBackend.cameras()`."""
    from . import opencv_backend

    return opencv_backend.cameras()


class CameraStream(Protocol):
    """An open camera. All methods are called on the thread that opened it.

    Attributes:
        device: the opened device; for the default, the device that is the default now.
    """

    device: MediaDeviceInfo

    def read(self) -> VideoFrame:
        """Wait for the next frame and return it.

        Raises:
            DeviceError: the camera failed; only `close()` may follow.
        """

    def close(self) -> None:
        """Close the camera. Never raises."""


class CameraBackend(Protocol):
    """The cameras of this machine. Thread-safe."""

    def cameras(self) -> list[MediaDeviceInfo]:
        """Return the cameras that exist now, the default first.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: the library is installed and does not load.
        """

    def open_camera(self, device_id: str | None, *, width: int, height: int, fps: float) -> CameraStream:
        """Open a camera; the calling thread has to read and close it.

        Args:
            device_id: id of the camera; None: the default.
            width, height: size of the images, in pixels.
            fps: frames per second. Width, height and fps are requests: the camera uses the nearest mode it has.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: there is no such camera ("not-found"), another program has it ("in-use"), this user may not
                have it ("permissions"), or something else ("unknown").
        """
