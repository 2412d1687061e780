"""Signals in the tracer, which tests must not interrupt while coverage is measured."""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

import pytest

from .measuring import in_coverage


def frame_in(*path: str) -> FrameType:
    """Return the frame of a function that code in a file of this path has called."""
    namespace: dict[str, Any] = {"get_frame": lambda: sys._getframe()}
    exec(compile("frame = get_frame()", os.path.join(*path), "exec"), namespace)
    frame: FrameType = namespace["frame"]
    return frame


@pytest.mark.parametrize(
    ("path", "is_tracer"),
    [
        (("site-packages", "coverage", "collector.py"), True),
        (("site-packages", "coverage", "cmdline.py"), False),  # below all code that it runs
        (("rtvi_sync", "media", "collector.py"), False),
    ],
)
def test_the_tracer_is_found(path: tuple[str, ...], is_tracer: bool) -> None:
    """Frames of coverage's collector count as the tracer's, and frames of its command line do not."""
    assert in_coverage(frame_in(*path)) == is_tracer
