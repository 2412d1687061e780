"""The loggers of the package, which never raise."""

from __future__ import annotations

import contextlib
import logging
import traceback


def package_logger(name: str) -> logging.Logger:
    """Return the logger of a module, whose calls never raise.

    `logging` catches exceptions of its handlers, but not of an application's filter. On a thread that serves all
    sessions, or ends one, such an exception would do more harm than lose a line of the log.
    """
    logger = logging.getLogger(name)
    handle = logger.handle

    def guarded(record: logging.LogRecord) -> None:
        try:
            handle(record)
        except Exception:  # noqa: BLE001 - the application's code may raise anything
            if logging.raiseExceptions:  # as handlers of `logging` report their own failures
                with contextlib.suppress(OSError, ValueError):  # there may be no stderr
                    traceback.print_exc()

    logger.handle = guarded  # type: ignore[method-assign]
    return logger
