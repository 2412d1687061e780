"""Waiting for something that other threads or processes do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.support.slowness import GUARD


def until(condition: Callable[[], Any], what: str = "it has not come true", timeout: float = GUARD) -> None:
    """Wait until other threads or processes have made it so; fail after `timeout` seconds."""
    pause, limit = threading.Event(), time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {timeout} s"
        pause.wait(0.005)
