"""The statistics of the users' calls: numbers, durations, errors; and all violations."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rtvi_sync import RTVIError, errors


class UserError(Exception):
    """Raised by a user's handler or function."""


# Seconds that a busy machine may add to the limit of a call.
GRACE: Final = 10.0
_MAX_VIOLATIONS: Final = 50
#: Errors that the package may log: its own, and those that users raise. Any other is a fault of the package.
_EXPECTED: Final = (RTVIError, UserError)
_NAMED: Final = {error for error in vars(errors).values() if isinstance(error, type)}


class Ledger(logging.Handler):
    """Counters of bounded size. Any thread writes to them.

    Attributes:
        calls: numbers of calls by name.
        errors: numbers of errors by name of the call and class of the error.
        longest: the most seconds over its limit, or (negative) below it, that a call took, by name.
        logged: numbers of the package's log records, by level and unformatted text.
        dropped: the number of clients that were collected while connected.
        sessions: the number of sessions that were ready.
        reconnects: the number of sessions that clients have replaced by reconnecting.
        wrong: violations, in words; each fails the soak.
    """

    def __init__(self) -> None:
        super().__init__()
        # Guards all counters. Any thread may hold it, for one addition. Re-entrant: a finalizer may warn anywhere.
        self._lock = threading.RLock()
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.longest: dict[str, float] = {}
        self.logged: Counter[tuple[str, str]] = Counter()
        self.dropped = 0
        self.sessions = 0
        self.reconnects = 0
        self.wrong: list[str] = []

    def blame(self, what: str) -> None:
        """Record a violation."""
        with self._lock:
            if len(self.wrong) < _MAX_VIOLATIONS:
                self.wrong.append(what)

    @contextlib.contextmanager
    def call(self, name: str, limit: float) -> Iterator[None]:
        """Measure a call that may take `limit` seconds, and may raise only the package's own errors."""
        began = time.monotonic()
        try:
            yield
        except RTVIError as error:
            with self._lock:
                self.errors[name, type(error).__name__] += 1
            if type(error) not in _NAMED or not str(error):
                self.blame(f"{name}: {error!r} is of no exported class, or has no text")
        except Exception:  # noqa: BLE001 - it is recorded, and fails the soak
            self.blame(f"{name}: {traceback.format_exc()}")
        over = time.monotonic() - began - limit
        with self._lock:
            self.calls[name] += 1
            self.longest[name] = max(over, self.longest.get(name, over))
        if over > GRACE:
            self.blame(f"{name} took {over + limit:.1f} s, its limit is {limit:g} s")

    def ready(self) -> None:
        """Count a session."""
        with self._lock:
            self.sessions += 1

    def add_reconnects(self, times: int) -> None:
        """Add the reconnects of a client."""
        with self._lock:
            self.reconnects += times

    # -- logs, warnings, uncaught errors ------------------------------------------------------------------------------

    def watch(self) -> None:
        """Start to record the package's log, warnings, and uncaught errors."""
        package = logging.getLogger("rtvi_sync")
        package.addHandler(self)
        package.propagate = False
        warnings.simplefilter("always")
        warnings.showwarning = self._warned
        sys.unraisablehook = lambda caught: self._uncaught(caught.err_msg, caught.exc_value)
        threading.excepthook = lambda caught: self._uncaught(str(caught.thread), caught.exc_value)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a log record. An error in it that is not expected is a violation."""
        error = record.exc_info[1] if record.exc_info else None
        with self._lock:
            self.logged[record.levelname, f"{record.msg}{f' ({type(error).__name__})' if error else ''}"] += 1
        if error is not None and not isinstance(error, _EXPECTED):
            self.blame(f"logged: {record.getMessage()}: {''.join(traceback.format_exception(error))}")

    def _warned(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ResourceWarning) and str(message).startswith("An RTVIClient was dropped"):
            with self._lock:
                self.dropped += 1
        else:
            self.blame(f"{category.__name__}: {message}")

    def _uncaught(self, where: str | None, error: BaseException | None) -> None:
        self.blame(f"uncaught, in {where}: {''.join(traceback.format_exception(error))}")
