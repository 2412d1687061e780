"""What a command does not want to hear."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def without_logs_of_devices() -> Iterator[None]:
    """For commands that show what goes wrong with devices themselves, by the events that tell it, too."""
    # And the stacks of threads that hang in a device, at the end.
    loggers = [logging.getLogger(f"rtvi_sync.{name}") for name in ("media", "concurrency.lifecycle")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
