"""The log records that a command suppresses."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def suppress_device_logs() -> Iterator[None]:
    """Suppress the log records about devices, for commands that print device errors from events."""
    # The second logger writes the stacks of threads that are still blocked in a device at the end.
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media", "concurrency.lifecycle")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
