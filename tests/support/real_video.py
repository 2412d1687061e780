"""The video libraries, where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media import VideoFrame
from rtvi_sync.media.devices import opencv_backend
from tests.support.slowness import GUARD

from .required import missing


def opencv() -> Any:
    """Return OpenCV, or skip the test by name; with RTVI_REQUIRE_REAL fail it."""
    try:
        return opencv_backend.load("This test")
    except (DeviceError, MissingExtraError) as error:
        missing(str(error))


def xvfb() -> str:
    """Return the virtual X server's program, or skip the test by name; with RTVI_REQUIRE_REAL fail it."""
    return shutil.which("Xvfb") or missing("Xvfb is not installed")


def write_film(path: Path, count: int, fps: float = 10.0, size: tuple[int, int] = (64, 48)) -> Path:
    """Write a video of grey images, each 40 lighter than the one before it, with OpenCV itself."""
    import numpy

    cv2 = opencv()
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), fps, size)
    assert writer.isOpened()
    for number in range(count):
        writer.write(numpy.full((size[1], size[0], 3), 40 * number, numpy.uint8))
    writer.release()
    return path


def shade(frame: VideoFrame) -> int:
    """Return the index of an image of `write_film()`."""
    return round(frame.image[0] / 40)


@pytest.fixture
def screen(monkeypatch):
    """Run an X server with a virtual screen of 320 x 240 black pixels."""
    pytest.importorskip("mss", reason="mss (extra screen) is not installed")
    program = xvfb()
    reading, writing = os.pipe()
    server = subprocess.Popen(
        # Without -noreset the server restarts when its last client leaves, and refuses a client during the restart.
        [program, "-displayfd", str(writing), "-screen", "0", "320x240x24", "-nolisten", "tcp", "-noreset"],
        pass_fds=[writing],
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    with open(reading, "rb") as output:
        number = output.readline().decode().strip()
    assert number, "Xvfb has not begun"
    monkeypatch.setenv("DISPLAY", f":{number}")
    yield server
    server.terminate()
    server.wait(GUARD)
