"""Camera backend: OpenCV opens and reads cameras, cv2-enumerate-cameras lists their names.

Implements `CameraBackend`. OpenCV is imported at its first use: it takes 44 MiB, and libraries that a machine may lack.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Any

import attrs

from ...concurrency.clock import monotonic
from ...errors import DeviceError, MissingExtraError, fresh_copy
from ...protocol.record import Record
from ..base import MediaDeviceInfo, VideoFrame

# API for the cameras of each platform. OpenCV's default on Windows takes up to 30 s to open a camera.
_APIS = {"linux": "CAP_V4L2", "darwin": "CAP_AVFOUNDATION", "win32": "CAP_DSHOW"}
# Above this number of pixels USB 2 carries full frame rates only compressed.
_UNCOMPRESSED_PIXELS = 640 * 480
# Request to free zero buffers of a video capture (linux/videodev2.h): fails if another program has buffers, and changes
# nothing.
_VIDIOC_REQBUFS, _NO_BUFFERS = 0xC0145608, struct.pack("=5I", 0, 1, 1, 0, 0)

# Error of the first import of OpenCV, because a second attempt fails with another error and prints.
_failure: DeviceError | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class _Found(Record):
    """A connected camera; `index` and `path` change when it is plugged in again."""

    info: MediaDeviceInfo
    index: int
    path: str


class OpenCVCamera:
    """An open camera. All methods are called on the thread that opened it.

    Attributes:
        device: the opened camera.
    """

    def __init__(self, cv2: Any, capture: Any, found: _Found) -> None:
        self.device: MediaDeviceInfo = found.info
        self._cv2 = cv2
        self._capture = capture
        self._path = found.path

    def read(self) -> VideoFrame:
        """Wait for the next frame and return it.

        Raises:
            DeviceError: the camera failed, or was unplugged.
        """
        taken, image = self._capture.read()
        if not taken:
            raise _unusable(f"The camera {self.device.label!r} gives no picture", self._path)
        return to_frame(self._cv2, image)

    def close(self) -> None:
        """Close the camera; its light is switched off."""
        self._capture.release()


def load(feature: str) -> Any:
    """Import OpenCV, without output, and return it.

    Args:
        feature: the feature that needs it, for the error text.

    Raises:
        MissingExtraError: it is not installed.
        DeviceError: it is installed, and a library that it needs is not.
    """
    global _failure
    if _failure is not None:
        raise fresh_copy(_failure)
    quiet = "cv2" not in sys.modules and "OPENCV_LOG_LEVEL" not in os.environ
    path = sys.path.copy()
    try:
        import cv2
    except ModuleNotFoundError as error:
        if error.name != "cv2":
            raise
        raise MissingExtraError(feature, "video") from error
    except ImportError as error:
        # The failed import leaves its folder in sys.path, and a `typing` in it that would hide Python's.
        sys.path[:] = path
        _failure = DeviceError(
            f"OpenCV is installed and does not load: {error}. On Debian and Ubuntu run: apt-get install -y "
            "--no-install-recommends libgl1 libglib2.0-0. Or replace opencv-python by opencv-python-headless, which "
            "needs neither",
            devices=("cam",),
            details=str(error),
        )
        raise fresh_copy(_failure) from error
    if quiet:
        # OpenCV writes some lines to stderr for each camera that does not open. An application that uses OpenCV itself
        # has imported it before, or sets its log level by the variable.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2


def cameras() -> list[MediaDeviceInfo]:
    """Return the cameras that exist now, the default first. Blocks for a few milliseconds; thread-safe.

    Ids are made of names, such as "V4L2/HD Webcam", and stay the same when a camera is plugged in elsewhere. The id of
    a second camera of the same name ends in "#2".

    Raises:
        MissingExtraError: OpenCV is not installed.
        DeviceError: OpenCV is installed and does not load.
    """
    return [found.info for found in _find(load("The camera"))]


def open_camera(device_id: str | None, *, width: int, height: int, fps: float) -> OpenCVCamera:
    """Open a camera. Blocks for up to some seconds; the calling thread has to read and close it.

    Args:
        device_id: id from `cameras()`; None: the default.
        width, height: size of the images, in pixels.
        fps: frames per second. Width, height and fps are requests: the camera uses the nearest mode it has.

    Raises:
        MissingExtraError: OpenCV is not installed.
        DeviceError: there is no such camera ("not-found"), another program has it ("in-use"), this user may not have
            it ("permissions"), or something else ("unknown").
    """
    cv2 = load("The camera")
    present = _find(cv2)
    found = next((each for each in present if device_id in (None, each.info.device_id)), None)
    if found is None:
        what = "no camera" if device_id is None else f"no camera {device_id!r}"
        ids = ", ".join(repr(each.info.device_id) for each in present) or "none"
        raise DeviceError(
            f"There is {what} on this machine; found: {ids}",
            devices=("cam",),
            type="not-found",
        )
    capture = cv2.VideoCapture(found.index, _api(cv2))
    if not capture.isOpened():
        capture.release()
        raise _unusable(f"The camera {found.info.label!r} does not open", found.path)
    if width * height > _UNCOMPRESSED_PIXELS:
        capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter_fourcc(*"MJPG"))  # first: it determines the sizes
    capture.set(cv2.CAP_PROP_FRAME_WIDTH, width)
    capture.set(cv2.CAP_PROP_FRAME_HEIGHT, height)
    capture.set(cv2.CAP_PROP_FPS, fps)
    capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # so that read() returns the newest frame
    return OpenCVCamera(cv2, capture, found)


def to_frame(cv2: Any, image: Any) -> VideoFrame:
    """Return an OpenCV image, captured just now, as a `VideoFrame`."""
    timestamp = monotonic()
    height, width = image.shape[:2]
    image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
    return VideoFrame(image=image.tobytes(), width=width, height=height, timestamp=timestamp)


def _api(cv2: Any) -> int:
    api: int = getattr(cv2, _APIS.get(sys.platform, "CAP_ANY"))
    return api


def _find(cv2: Any) -> list[_Found]:
    try:
        from cv2_enumerate_cameras import enumerate_cameras
    except ImportError as error:
        raise MissingExtraError("The camera", "video") from error
    api = _api(cv2)
    prefix = cv2.videoio_registry.getBackendName(api)
    found: list[_Found] = []
    times: dict[str, int] = {}
    for camera in sorted(enumerate_cameras(api), key=lambda camera: int(camera.index)):
        label = camera.name or camera.path or f"camera {camera.index}"
        times[label] = times.get(label, 0) + 1
        device_id = f"{prefix}/{label}" + (f"#{times[label]}" if times[label] > 1 else "")
        info = MediaDeviceInfo(device_id=device_id, kind="videoinput", label=label, is_default=not found)
        found.append(_Found(info=info, index=camera.index, path=camera.path or ""))
    return found


def _unusable(what: str, path: str) -> DeviceError:
    """Return the error for a camera that does not work, with the reason if it is known."""
    if sys.platform == "darwin":
        reason = (
            "another program may be using it, or macOS denies access: see System Settings > Privacy & Security > "
            "Camera. If this program is not listed there, run: python3 -c 'import cv2; cv2.VideoCapture(0)'"
        )
        return DeviceError(f"{what}: {reason}", devices=("cam",))
    if not sys.platform.startswith("linux"):
        reason = "another program may be using it, or the privacy settings of the system deny access"
        return DeviceError(f"{what}: {reason}", devices=("cam",))
    import errno
    import fcntl

    try:
        # Any number of programs may open a camera; the first that requests buffers can use it.
        with open(path, "r+b", buffering=0) as node:
            fcntl.ioctl(node, _VIDIOC_REQBUFS, _NO_BUFFERS)
    except OSError as error:
        kind, advice = {
            errno.ENOENT: ("not-found", "it is no longer connected. Plug it in again, or choose another camera"),
            errno.ENODEV: ("not-found", "it is no longer connected. Plug it in again, or choose another camera"),
            errno.EACCES: (
                "permissions",
                f"this user may not open {path}. Run sudo usermod -aG video $USER, then log in again",
            ),
            errno.EPERM: ("permissions", f"this program may not use {path}. In a container, pass that device through"),
            errno.EBUSY: ("in-use", "another program is using it. End that program, or choose another camera"),
        }.get(error.errno or 0, ("unknown", f"{path}: {error.strerror}"))
        return DeviceError(f"{what}: {advice}", devices=("cam",), type=kind, details=str(error))
    return DeviceError(f"{what}, and the system does not say why ({path}). Plug it in again", devices=("cam",))
