"""Code that tests must not interrupt while coverage is measured."""

from __future__ import annotations

import os
from types import FrameType
from typing import Final

#: Seconds after which a signal that arrived in the tracer tries again.
AFTER_COVERAGE: Final = 1e-4

_TRACER: Final = tuple(os.path.join("coverage", name) for name in ("collector.py", "control.py", "inorout.py"))


def in_coverage(frame: FrameType | None) -> bool:
    """Return whether a signal has interrupted the tracer of coverage.

    An exception there would leave its lock locked, for which every thread would then wait for ever.
    """
    while frame is not None:
        if frame.f_code.co_filename.endswith(_TRACER):
            return True
        frame = frame.f_back
    return False
