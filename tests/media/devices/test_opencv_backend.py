"""The OpenCV backend: import, output, errors, names and ids of cameras."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import MediaDeviceInfo
from rtvi_sync.media.devices import opencv_backend
from tests.support.real_video import opencv
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside


class Image:
    """Image with the parts of an array's interface that the backend uses."""

    def __init__(self, width: int, height: int) -> None:
        self.shape = (height, width, 3)

    def tobytes(self) -> bytes:
        return bytes(3 * self.shape[0] * self.shape[1])


class FakeCapture:
    """Fake of cv2.VideoCapture with one image."""

    opens = True

    def __init__(self, index: int, api: int) -> None:
        self.index, self.api = index, api
        self.images = [Image(4, 2)]
        self.set_to: list[tuple[str, object]] = []
        self.released = False
        made.append(self)

    def isOpened(self) -> bool:
        return self.opens

    def set(self, name: str, value: object) -> None:
        self.set_to.append((name, value))

    def read(self):
        return (True, self.images.pop()) if self.images else (False, None)

    def release(self) -> None:
        self.released = True


made: list[FakeCapture] = []
V4L2 = 200


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return `machine(name, ...)`, which sets up cameras of these names, whose device nodes are files of this test."""
    made.clear()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(FakeCapture, "opens", True)

    def prepare(*names: str | None) -> list[Path]:
        nodes = [tmp_path / f"video{number}" for number in range(len(names))]
        for node in nodes:
            node.touch()
        cv2 = SimpleNamespace(
            CAP_V4L2=V4L2,
            COLOR_BGR2RGB=4,
            VideoCapture=FakeCapture,
            VideoWriter_fourcc=lambda *letters: "".join(letters),
            cvtColor=lambda image, code: image,
            videoio_registry=SimpleNamespace(getBackendName={V4L2: "V4L2"}.__getitem__),
            **{f"CAP_PROP_{name}": name for name in ("FOURCC", "FRAME_WIDTH", "FRAME_HEIGHT", "FPS", "BUFFERSIZE")},
        )
        listed = [
            SimpleNamespace(index=index, name=name, path=str(node))
            for index, (name, node) in enumerate(zip(names, nodes, strict=True))
        ]
        # The library lists nodes in the folder's order, which is undefined.
        enumerator = SimpleNamespace(enumerate_cameras=lambda api: listed[::-1] if api == V4L2 else None)
        monkeypatch.setitem(sys.modules, "cv2", cv2)
        monkeypatch.setitem(sys.modules, "cv2_enumerate_cameras", enumerator)
        return nodes

    return prepare


def open_camera(device_id: str | None = None, width: int = 640, height: int = 480) -> opencv_backend.OpenCVCamera:
    return opencv_backend.open_camera(device_id, width=width, height=height, fps=30)


# -- list of cameras


def test_cameras_have_names_and_ids(machine):
    """Ids are made of names, in the system's order; the id of a second camera of a name has a number."""
    machine("HD Webcam", "Infrared", "HD Webcam")
    assert opencv_backend.cameras() == [
        MediaDeviceInfo(device_id="V4L2/HD Webcam", kind="videoinput", label="HD Webcam"),
        MediaDeviceInfo(device_id="V4L2/Infrared", kind="videoinput", label="Infrared"),
        MediaDeviceInfo(device_id="V4L2/HD Webcam#2", kind="videoinput", label="HD Webcam"),
    ]


def test_a_camera_without_a_name(machine):
    """The label of a camera without a name is its path."""
    (node,) = machine(None)
    assert [info.label for info in opencv_backend.cameras()] == [str(node)]


@pytest.mark.parametrize(("device_id", "index"), [(None, 0), ("V4L2/b", 1), ("V4L2/a#2", 2)])
def test_a_camera_is_opened_by_its_id(machine, device_id, index):
    """An id selects the current index of the camera; the default is the first camera."""
    machine("a", "b", "a")
    camera = open_camera(device_id)
    assert (made[0].index, made[0].api) == (index, V4L2)
    assert camera.device == opencv_backend.cameras()[index]


@pytest.mark.parametrize(
    ("names", "device_id", "message"),
    [
        ([], None, "There is no camera on this machine; found: none$"),
        (["a"], "V4L2/b", "There is no camera 'V4L2/b' on this machine; found: 'V4L2/a'$"),
    ],
)
def test_no_such_camera(machine, names, device_id, message):
    """The error lists the cameras that exist, and OpenCV is not called."""
    machine(*names)
    with pytest.raises(DeviceError, match=message) as caught:
        open_camera(device_id)
    assert (caught.value.type, caught.value.devices) == ("not-found", ("cam",))
    assert made == []


# -- reading


def test_settings_of_a_camera(machine):
    """Size, rate and a buffer of one frame are set; compression first, for sizes that USB carries only compressed."""
    machine("a")
    open_camera()
    open_camera(None, 1280, 720)
    assert made[0].set_to == [("FRAME_WIDTH", 640), ("FRAME_HEIGHT", 480), ("FPS", 30), ("BUFFERSIZE", 1)]
    assert made[1].set_to[:2] == [("FOURCC", "MJPG"), ("FRAME_WIDTH", 1280)]


def test_a_frame_has_the_size_that_the_camera_uses(machine):
    """The requested size is a hint."""
    machine("a")
    camera = open_camera()
    frame = camera.read()
    assert (frame.width, frame.height, frame.format, len(frame.image)) == (4, 2, "RGB", 24)
    camera.close()
    assert made[0].released


def test_a_camera_that_is_unplugged(machine):
    """A camera without image and without device node was unplugged."""
    (node,) = machine("HD Webcam")
    camera = open_camera()
    camera.read()
    node.unlink()
    with pytest.raises(DeviceError, match="'HD Webcam' gives no picture: it is no longer connected") as caught:
        camera.read()
    assert caught.value.type == "not-found"


@pytest.mark.parametrize(
    ("number", "type_", "advice"),
    [
        (errno.EBUSY, "in-use", "another program is using it"),
        (errno.EACCES, "permissions", "usermod -aG video"),
        (errno.EPERM, "permissions", "container"),
        (errno.ENODEV, "not-found", "Plug it in again"),
        (errno.EIO, "unknown", "Input/output error"),
        (None, "unknown", "does not say why"),
    ],
)
def test_why_a_camera_does_not_open(machine, monkeypatch, number, type_, advice):
    """OpenCV reports no reason, so the error has the one of the device node."""
    import fcntl

    machine("HD Webcam")
    asked: list[tuple[int, bytes]] = []

    def ioctl(node, request, argument):
        asked.append((request, argument))
        if number is not None:
            import os

            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    monkeypatch.setattr(FakeCapture, "opens", False)
    with pytest.raises(DeviceError, match=advice) as caught:
        open_camera()
    assert caught.value.type == type_
    assert "'HD Webcam' does not open" in str(caught.value)
    assert made[0].released
    # VIDIOC_REQBUFS takes 20 bytes, as its number encodes; it requests 0 buffers, so that it changes nothing.
    assert asked == [(0xC0145608, asked[0][1])]
    assert len(asked[0][1]) == (0xC0145608 >> 16) & 0x3FFF
    assert asked[0][1][:4] == bytes(4)


@pytest.mark.parametrize(
    ("platform", "advice"), [("darwin", "Privacy & Security"), ("win32", "settings of the system")]
)
def test_on_other_platforms_the_reason_is_unknown(machine, monkeypatch, platform, advice):
    """The error lists the likely reasons."""
    machine("a")
    cv2: Any = sys.modules["cv2"]
    cv2.CAP_AVFOUNDATION = cv2.CAP_DSHOW = V4L2
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(FakeCapture, "opens", False)
    with pytest.raises(DeviceError, match=advice) as caught:
        open_camera()
    assert caught.value.type == "unknown"


# -- missing libraries


@pytest.mark.parametrize("module", ["cv2", "cv2_enumerate_cameras"])
def test_without_the_extra(machine, monkeypatch, module):
    """The error has the command that installs the extra."""
    machine("a")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"install .*\[video\]"):
        opencv_backend.cameras()


def python(code: str, folder: Path | None = None) -> tuple[str, str]:
    """Return the stdout and stderr of a new process; it has to exit with status 0."""
    path = [str(Path(__file__).parents[3]), *([str(folder)] if folder else [])]
    code = f"import sys; sys.path[:0] = {path[::-1]}\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_without_a_library_of_the_system(tmp_path):
    """The error names the library and its packages, also at the second attempt, at which OpenCV would print and raise
    another error. The folder that it adds to sys.path is removed: it contains a `typing`."""
    package = tmp_path / "cv2"
    package.mkdir()
    package.joinpath("__init__.py").write_text(
        "import sys\n"
        "if hasattr(sys, 'tried'): print('recursion'); raise ImportError('recursion')\n"
        "sys.tried = True\n"
        "sys.path.insert(1, __path__[0])\n"
        "raise ImportError('libGL.so.1: cannot open shared object file: No such file or directory')\n"
    )
    out, err = python(
        "from rtvi_sync.errors import DeviceError\n"
        "from rtvi_sync.media.devices import opencv_backend\n"
        "before = sys.path.copy()\n"
        "for attempt in (opencv_backend.cameras, opencv_backend.cameras):\n"
        "    try: attempt()\n"
        "    except DeviceError as error: print(error, '|', error.details)\n"
        "print(sys.path == before)\n",
        tmp_path,
    )
    first, second, same_path = out.splitlines()
    assert same_path == "True"
    assert first == second
    assert "libGL.so.1: cannot open shared object file" in first
    assert "apt-get install -y --no-install-recommends libgl1 libglib2.0-0" in first
    assert err == ""


def test_a_machine_without_cameras_is_silent():
    """Listing cameras, and opening one that does not exist, writes nothing to stderr."""
    opencv()
    out, err = python(
        "from rtvi_sync.errors import DeviceError\n"
        "from rtvi_sync.media.devices import opencv_backend\n"
        "opencv_backend.cameras()\n"
        "try: opencv_backend.open_camera('nowhere/none', width=640, height=480, fps=30)\n"
        "except DeviceError as error: print(error.type)\n"
        "import cv2\n"
        "print(cv2.VideoCapture('nowhere.avi').isOpened(), cv2.VideoCapture(99).isOpened())\n"
    )
    assert (out, err) == ("not-found\nFalse False\n", "")


def test_the_application_sets_the_log_level_of_opencv():
    """If the application has imported OpenCV before, or set its variable, the log level is not changed."""
    opencv()
    load = (
        "from rtvi_sync.media.devices import opencv_backend; opencv_backend.load('x'); import cv2\n"
        "print(cv2.utils.logging.getLogLevel() == cv2.utils.logging.LOG_LEVEL_SILENT)"
    )
    assert python(f"import cv2; {load}")[0] == "False\n"
    assert python(f"import os; os.environ['OPENCV_LOG_LEVEL'] = 'ERROR'; {load}")[0] == "False\n"
