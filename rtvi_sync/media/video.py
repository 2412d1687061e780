"""Video sources: cameras, the screen, files."""

from __future__ import annotations

import abc
import os
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..errors import DeviceError, MissingExtraError
from ..protocol.validation import BOOL, COUNT, COUNT_OR_ZERO, NAME, PATH, POSITIVE, Rule, has_method
from .base import MediaDeviceInfo, VideoFrame, VideoSource, file_error
from .devices import opencv_backend
from .devices.backend import CameraBackend, CameraStream

# After a stop of more than this many seconds the schedule shifts instead of skipping all missed frames.
_MAX_LAG = 1.0
# Range of frame rates that a file may state, and the rate used instead of one outside of it.
_FILE_FPS, _DEFAULT_FPS = (1.0, 120.0), 25.0


class Pace:
    """A rate limiter that lets one thread do something `fps` times a second."""

    def __init__(self, fps: float) -> None:
        self._period = 1 / fps
        self._due: float | None = None

    @property
    def remaining(self) -> float:
        """The seconds that `wait()` would wait now."""
        return 0.0 if self._due is None else max(0.0, self._due - monotonic())

    def wait(self) -> int:
        """Wait until the next period is due; return how many were missed since the last call."""
        now = monotonic()
        if self._due is None or now - self._due > _MAX_LAG:
            self._due = now
        missed = int(max(0.0, now - self._due) / self._period)
        self._due += missed * self._period
        Latch().wait(Deadline(self.remaining))
        self._due += self._period
        return missed


class PackagedVideo(abc.ABC):
    """The base class of this package's video sources, which opens one stream for each reading thread.

    OpenCV hangs or crashes if a thread releases a stream that another one reads, and mss on Windows works only on the
    thread that opened it. A thread that was blocked in the library and returns when another thread uses the source
    therefore accesses only its own stream.
    """

    def __init__(self) -> None:
        self._own = threading.local()

    def read(self) -> VideoFrame | None:
        """Wait for the next image and return it; the first call on a thread opens its stream."""
        stream: VideoSource | None = self._opened()
        if stream is None:
            stream = self._own.stream = self._open()
        return stream.read()

    @property
    def remaining(self) -> float:
        """The seconds until the next image is due, for a thread that does something else until then."""
        pace: Pace | None = getattr(self._opened(), "pace", None)  # a camera has a pace of its own
        return 0.0 if pace is None else pace.remaining

    def close(self) -> None:
        """Close this thread's stream; the next `read()` opens a new one."""
        stream, self._own.stream = self._opened(), None
        if stream is not None:
            stream.close()

    def _opened(self) -> Any:
        return getattr(self._own, "stream", None)

    @abc.abstractmethod
    def _open(self) -> VideoSource:
        """Open a stream for the calling thread."""


_BACKEND = Rule(
    "an object with open_camera()", lambda value: isinstance(value, ModuleType) or has_method(value, "open_camera")
).or_none


class CameraSource(PackagedVideo):
    """A camera of this machine, with a preferred resolution and frame rate.

    `RTVIClient(cam="V4L2/HD Webcam")` is the same as `RTVIClient(cam=CameraSource("V4L2/HD Webcam"))`.

    Args:
        device_id: Id of a device in `client.get_all_cams()`; None: the default.
        width, height: Size of the images, in pixels.
        fps: Images per second. The camera uses the nearest mode that it has; each frame states its size.
        backend: Finds and opens cameras; None: OpenCV.

    Raises:
        ValueError: A number is not above zero.
    """

    def __init__(
        self,
        device_id: str | None = None,
        *,
        width: int = 640,
        height: int = 480,
        fps: float = 30.0,
        backend: CameraBackend | None = None,
    ) -> None:
        super().__init__()
        NAME.or_none.check(device_id=device_id)
        COUNT.check(width=width, height=height)
        POSITIVE.check(fps=fps)
        _BACKEND.check(backend=backend)
        self.device_id = device_id
        self._hints: dict[str, Any] = {"width": width, "height": height, "fps": fps}
        self._backend: CameraBackend = backend or opencv_backend

    def __repr__(self) -> str:
        return f"CameraSource({self.device_id!r})"

    @property
    def device(self) -> MediaDeviceInfo | None:
        """The device that the calling thread has open, or None."""
        stream: CameraStream | None = self._opened()
        return stream.device if stream is not None else None

    def _open(self) -> CameraStream:
        return self._backend.open_camera(self.device_id, **self._hints)


class FileVideoSource(PackagedVideo):
    """The video of a file in real time, for machines without a camera.

    Reads the formats of OpenCV: MP4, AVI, WebM, and images, which repeat. The audio of the file is not used. The video
    restarts whenever the camera is turned on.

    Args:
        path: A file. A pattern such as "frames/%03d.png" is a series of images.
        fps: Frames per second; None: the file's rate, 25 for images.
        loop: True to start again at the end. False: the video ends there until the camera is turned on again.

    Raises:
        MissingExtraError: OpenCV is not installed; the extra `video` installs it.
        DeviceError: There is no such file (`.type` "not-found"), it may not be read ("permissions"), or OpenCV finds no
            image in it ("unknown").
        ValueError: `fps` is not above zero.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float | None = None, loop: bool = True) -> None:
        super().__init__()
        PATH.check(path=path)
        POSITIVE.or_none.check(fps=fps)
        BOOL.check(loop=loop)
        self.path: Path = Path(path)
        self._fps = fps
        self._loop = loop
        try:
            if "%" not in self.path.name:
                self.path.open("rb").close()
        except OSError as error:
            raise file_error(f"Cannot read the video file {self.path}", "cam", error) from error
        self._open().close()  # reports here a file that cannot be read

    def __repr__(self) -> str:
        return f"FileVideoSource({str(self.path)!r})"

    def _open(self) -> VideoSource:
        return _FileStream(opencv_backend.load("FileVideoSource"), self.path, self._fps, self._loop)


class _FileStream:
    def __init__(self, cv2: Any, path: Path, fps: float | None, loop: bool) -> None:
        self._cv2 = cv2
        self._path = path
        self._loop = loop
        self._capture = self._begin()
        stated = self._capture.get(cv2.CAP_PROP_FPS)
        low, high = _FILE_FPS
        self.pace = Pace(fps or (stated if low <= stated <= high else _DEFAULT_FPS))
        self._frames = 0  # since the start of the file
        self._image: Any = None  # the latest

    def read(self) -> VideoFrame | None:
        """Wait until the next frame is due and return it; skip the frames that were missed."""
        for _ in range(self.pace.wait()):
            self._next()
        return opencv_backend.to_frame(self._cv2, self._image) if self._next() else None

    def close(self) -> None:
        """Close the file."""
        self._capture.release()

    def _begin(self) -> Any:
        capture = self._cv2.VideoCapture(str(self._path))
        if not capture.isOpened():
            capture.release()
            raise DeviceError(
                f"OpenCV finds no image in {self._path}. It reads MP4, AVI, WebM, PNG, JPEG and more; convert other "
                "files with ffmpeg",
                devices=("cam",),
            )
        return capture

    def _next(self) -> bool:
        """Read the next image, or the first after the last if the video loops; return False at the end."""
        taken, image = self._capture.read()
        if not taken and self._loop:
            if self._frames == 1:
                return True  # a file with a single image shows it again
            if self._frames:
                # Reopened instead of rewound, because not every format can be rewound, and some that can do not return
                # to the first image.
                self._capture.release()
                self._capture = self._begin()
                self._frames = 0
                taken, image = self._capture.read()
        if taken:
            self._frames += 1
            self._image = image
        return bool(taken)


class ScreenSource(PackagedVideo):
    """The content of a screen of this machine, for `enable_screen_share()` or instead of a camera.

    If there is no screen, `read()` raises a `DeviceError` ("not-found"). On Linux it captures the screen of the X
    server in `DISPLAY`; under Wayland only windows of X programs are visible.

    Args:
        monitor: Number of the monitor, from 1 on; 0: all of them side by side.
        fps: Images per second.

    Raises:
        MissingExtraError: mss is not installed; the extra `screen` installs it.
        ValueError: A number is out of range.
    """

    def __init__(self, monitor: int = 1, *, fps: float = 10.0) -> None:
        super().__init__()
        COUNT_OR_ZERO.check(monitor=monitor)
        POSITIVE.check(fps=fps)
        _mss()
        self.monitor = monitor
        self._fps = fps

    def __repr__(self) -> str:
        return f"ScreenSource({self.monitor})"

    @property
    def device_id(self) -> str:
        """The monitor's number, which identifies it in errors."""
        return str(self.monitor)

    @property
    def device(self) -> MediaDeviceInfo:
        """The monitor as a device."""
        return MediaDeviceInfo(device_id=self.device_id, kind="videoinput", label=f"screen {self.monitor}")

    def _open(self) -> VideoSource:
        return _ScreenStream(self.monitor, self._fps)


class _ScreenStream:
    def __init__(self, monitor: int, fps: float) -> None:
        self._mss = _mss()
        self.pace = Pace(fps)
        try:
            self._grabber = self._mss.MSS()
        except self._mss.ScreenShotError as error:
            display = os.environ.get("DISPLAY")
            seen = f"DISPLAY is {display!r}" if display else "DISPLAY is not set"
            raise _screen_error(f"There is no screen to read: {error} ({seen})", error, "not-found") from error
        monitors = self._grabber.monitors
        if monitor >= len(monitors):
            self.close()
            raise _screen_error(
                f"There is no monitor {monitor}; this machine has {len(monitors) - 1}. Choose one, or 0 for all",
                None,
                "not-found",
            )
        self._area = monitors[monitor]

    def read(self) -> VideoFrame:
        """Wait until the next frame is due and return an image of the screen."""
        self.pace.wait()
        timestamp = monotonic()
        try:
            shot = self._grabber.grab(self._area)
        except self._mss.ScreenShotError as error:
            raise _screen_error(f"Cannot read the screen: {error}", error) from error
        return VideoFrame(image=shot.rgb, width=shot.width, height=shot.height, timestamp=timestamp)

    def close(self) -> None:
        """Close the screen."""
        self._grabber.close()


def _mss() -> Any:
    try:
        import mss
    except ImportError as error:
        raise MissingExtraError("ScreenSource", "screen") from error
    return mss


def _screen_error(message: str, error: Exception | None, kind: str = "unknown") -> DeviceError:
    return DeviceError(message, devices=("screen",), type=kind, details=str(error) if error is not None else None)
