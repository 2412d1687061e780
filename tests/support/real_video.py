"""The libraries for pictures, where they are installed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rtvi_sync.errors import DeviceError, MissingExtraError
from rtvi_sync.media.devices import opencv_backend

from .required import missing


def opencv() -> Any:
    """OpenCV, or the test is skipped by name; with RTVI_REQUIRE_REAL it fails."""
    try:
        return opencv_backend.load("This test")
    except (DeviceError, MissingExtraError) as error:
        missing(str(error))


def xvfb() -> str:
    """The program of a screen in memory, or the test is skipped by name; with RTVI_REQUIRE_REAL it fails."""
    return shutil.which("Xvfb") or missing("Xvfb is not installed")


def write_film(path: Path, count: int, fps: float = 10.0, size: tuple[int, int] = (64, 48)) -> Path:
    """A film of grey images, each 40 lighter than the one before it, that OpenCV itself writes."""
    import numpy

    cv2 = opencv()
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), fps, size)
    assert writer.isOpened()
    for number in range(count):
        writer.write(numpy.full((size[1], size[0], 3), 40 * number, numpy.uint8))
    writer.release()
    return path
