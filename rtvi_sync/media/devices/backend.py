"""What the libraries for the devices of this machine have to offer: the seam to PyAudio and OpenCV."""

from __future__ import annotations

from typing import Protocol

from ..base import MediaDeviceInfo, VideoFrame


class InputStream(Protocol):
    """An open microphone. Everything is called on the thread that opened it.

    Attributes:
        device: what was opened; for the system's default, the device that this is now.
        sample_rate_hz: of what `read()` returns.
    """

    device: MediaDeviceInfo
    sample_rate_hz: int

    def read(self) -> bytes:
        """Wait for the next period and return it: mono, as many samples as were asked for when it was opened.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def backlog(self) -> float:
        """Seconds of audio that have been recorded and not been read yet."""

    def close(self) -> None:
        """Free the device. Never raises."""


class OutputStream(Protocol):
    """An open speaker. Everything is called on the thread that opened it.

    Attributes:
        device: what was opened; for the system's default, the device that this is now.
        sample_rate_hz: of what `write()` takes.
        buffer: seconds of audio that fit into the device's buffer.
    """

    device: MediaDeviceInfo
    sample_rate_hz: int
    buffer: float

    def write(self, pcm: bytes) -> None:
        """Wait until there is room in the device's buffer, and put mono samples there.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def room(self) -> float:
        """Seconds of audio that `write()` takes without waiting."""

    def drop(self) -> None:
        """Forget what was written and is not heard yet; `write()` may follow.

        Raises:
            DeviceError: the device failed; only `close()` may follow.
        """

    def close(self) -> None:
        """Free the device; what is not heard yet is lost. Never raises."""


class AudioBackend(Protocol):
    """The microphones and speakers of this machine. Any thread may call it, several at once."""

    def devices(self) -> list[MediaDeviceInfo]:
        """All microphones and speakers, as they are at this moment. Blocks for some 50 ms, 5 s at most.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: the machine's sound system does not answer.
        """

    def open_input(self, device_id: str | None, sample_rate_hz: int, period: float) -> InputStream:
        """Open a microphone.

        Args:
            device_id: None: the system's default.
            sample_rate_hz: what is wanted. The device is asked for it, and what it has is converted only if it refuses.
            period: seconds of audio that each `read()` returns.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: there is no such device ("not-found"), another program has it ("in-use"), this user may not
                have it ("permissions"), or something else ("unknown").
        """

    def open_output(self, device_id: str | None, sample_rate_hz: int, period: float) -> OutputStream:
        """Open a speaker. `period`: a third of what the device is to have room for, in seconds. As `open_input()`."""


def pyaudio_backend() -> AudioBackend:
    """The backend of this process by PyAudio, which is loaded with all it takes: not before a device is wanted.

    Raises nothing; PyAudio itself is imported when it is used.
    """
    from .pyaudio_backend import backend

    return backend()


def cameras() -> list[MediaDeviceInfo]:
    """The cameras of this machine by OpenCV; see `CameraBackend.cameras()`."""
    from . import opencv_backend

    return opencv_backend.cameras()


class CameraStream(Protocol):
    """An open camera. Everything is called on the thread that opened it.

    Attributes:
        device: what was opened; for the default, the device that this is now.
    """

    device: MediaDeviceInfo

    def read(self) -> VideoFrame:
        """Wait for the next image and return it.

        Raises:
            DeviceError: the camera failed; only `close()` may follow.
        """

    def close(self) -> None:
        """Free the camera. Never raises."""


class CameraBackend(Protocol):
    """The cameras of this machine. Any thread may call it, several at once."""

    def cameras(self) -> list[MediaDeviceInfo]:
        """All cameras, as they are at this moment, the default first.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: it does not load.
        """

    def open_camera(self, device_id: str | None, *, width: int, height: int, fps: float) -> CameraStream:
        """Open a camera; the thread that calls this is the one that reads and closes it.

        Args:
            device_id: None: the default.
            width, height: in pixels.
            fps: images per second. The camera is asked for these, and takes what it has that is near.

        Raises:
            MissingExtraError: the library is not installed.
            DeviceError: there is no such camera ("not-found"), another program has it ("in-use"), this user may not
                have it ("permissions"), or something else ("unknown").
        """
