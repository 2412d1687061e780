"""The video libraries, where they are installed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import opencv_backend

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
