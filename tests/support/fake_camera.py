"""A camera without hardware, controlled by a test, which records the threads that call it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DeviceError
from rtvi_sync.media import MediaDeviceInfo, VideoFrame
from rtvi_sync.media.devices.camera import Camera
from tests.support.slowness import GUARD

WEBCAM = MediaDeviceInfo(device_id="Fake/Webcam", kind="videoinput", label="Webcam")


def use_cameras(monkeypatch: pytest.MonkeyPatch, open_camera: Callable[..., Any], *infos: MediaDeviceInfo) -> None:
    """Let clients find cameras, which a function opens."""
    monkeypatch.setattr("rtvi_sync.media.devices.opencv_backend.open_camera", open_camera)
    monkeypatch.setattr("rtvi_sync.media.media.cameras", lambda: list(infos))


def picture(number: int, width: int = 2, height: int = 1) -> VideoFrame:
    """Return an image of one colour, identified by its number."""
    image = bytes([number % 256]) * (3 * width * height)
    return VideoFrame(image=image, width=width, height=height, timestamp=time.monotonic())


def number_of(frame: VideoFrame) -> int:
    """Return the number of a `picture()`."""
    return frame.image[0]


class FakeStream:
    """A stream of an open camera."""

    def __init__(self, backend: FakeCameras) -> None:
        self.device = WEBCAM
        self._backend = backend

    def read(self) -> VideoFrame:
        return self._backend.next_picture()

    def close(self) -> None:
        self._backend.note("close")


class FakeCameras:
    """A `CameraBackend` with one camera.

    Attributes:
        calls: name and thread of each call.
        hints: arguments of the last `open_camera()`.
        refuse: the error that opening raises.
        fail: the error that reading raises.
        pictures: the images that reading returns. Without one it blocks, or returns picture 0 after
            10 ms if the camera is `running`.
    """

    def __init__(self, *, running: bool = False) -> None:
        self.running = running
        self.calls: list[tuple[str, int]] = []
        self.hints: dict[str, Any] = {}
        self.refuse: Exception | None = None
        self.fail: Exception | None = None
        self.pictures: queue.Queue[VideoFrame | None] = queue.Queue()
        self.opened = 0
        self._changed = threading.Condition()
        self._hanging = threading.Event()
        self._hanging.set()

    def note(self, name: str) -> None:
        with self._changed:
            self.calls.append((name, threading.get_ident()))
            self.opened += {"open": 1, "close": -1}.get(name, 0)
            self._changed.notify_all()

    def cameras(self) -> list[MediaDeviceInfo]:
        return [WEBCAM]

    def open_camera(self, device_id: str | None, *, width: int, height: int, fps: float) -> FakeStream:
        self.hints = {"device_id": device_id, "width": width, "height": height, "fps": fps}
        self.note("try")
        assert self._hanging.wait(GUARD), "the test forgot this thread"
        if self.refuse is not None:
            raise self.refuse
        self.note("open")
        return FakeStream(self)

    def next_picture(self) -> VideoFrame:
        self.note("read")
        if self.fail is not None:
            raise self.fail
        try:
            frame = self.pictures.get(timeout=0.01 if self.running else GUARD)
        except queue.Empty:
            assert self.running, "the test forgot this thread"
            frame = picture(0)
        assert self._hanging.wait(GUARD), "the test forgot this thread"
        if frame is None:
            assert self.fail is not None
            raise self.fail
        return frame

    def break_down(self, message: str = "it was unplugged") -> None:
        """Make `read()` fail from now on."""
        self.fail = DeviceError(message, devices=("cam",), type="not-found")
        self.pictures.put(None)

    def mend(self) -> None:
        self.fail = None

    @contextmanager
    def hang(self) -> Iterator[None]:
        """Block every call, as a hung driver does."""
        self._hanging.clear()
        try:
            yield
        finally:
            self._hanging.set()

    def count(self, name: str) -> int:
        return sum(call == name for call, _ in self.calls)

    def wait_for(self, name: str, times: int) -> None:
        """Wait until `name` was called `times` times."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.count(name) >= times, GUARD), self.calls


class Shoot:
    """A `Camera`, with the pictures that it published and its reports."""

    def __init__(self, cam: Any, *, on: bool = True, **options: Any) -> None:
        self.on = on
        self.published: list[VideoFrame] = []
        self.threads: set[int] = set()
        self.errors: list[DeviceError] = []
        self.infos: list[MediaDeviceInfo] = []
        self.watched = 1000.0  # the watchdog's time
        self._changed = threading.Condition()
        self.camera = Camera(
            cam,
            enabled=lambda: self.on,
            publish=lambda frame: self._note(self.published, frame),
            report=lambda error: self._note(self.errors, error),
            opened=lambda info: self._note(self.infos, info),
            **options,
        )

    def _note(self, into: list[Any], what: Any) -> None:
        with self._changed:
            into.append(what)
            self.threads.add(threading.get_ident())
            self._changed.notify_all()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is published or reported."""
        with self._changed:
            assert self._changed.wait_for(condition, GUARD), (self.published, self.errors, self.infos)

    def turn(self, on: bool) -> None:
        self.on = on
        self.camera.look()

    def end(self, timeout: float = GUARD) -> threading.Thread | None:
        self.camera.halt()
        return self.camera.join(Deadline(timeout))


class Pictures:
    """A camera that shows one gray."""

    def __init__(self, gray):
        self.frame = VideoFrame(image=bytes([gray]) * 3 * 160 * 120, width=160, height=120, timestamp=0.0)

    def read(self):
        time.sleep(0.02)
        return attrs.evolve(self.frame, timestamp=time.monotonic())

    def close(self):
        pass
