"""What came of the calls that the users made: how many, how long, which errors; and what should not have been."""

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

# What a busy machine may add to the limit of a call, in seconds.
GRACE: Final = 10.0
_MOST_FAULTS_TOLD: Final = 50
_NAMED: Final = {error for error in vars(errors).values() if isinstance(error, type)}


class Ledger(logging.Handler):
    """Counts. It keeps nothing that grows with time. Any thread writes to it.

    Attributes:
        calls: by name.
        errors: by name of the call and class of the error.
        longest: seconds over its limit, or (negative) below it, that a call took at most, by name.
        logged: records of the package's log, by level and text before its arguments are put in.
        dropped: clients that were collected while connected.
        sessions: that were ready.
        reconnects: sessions that clients have replaced by themselves.
        wrong: what should not have been, in words; each fails the soak.
    """

    def __init__(self) -> None:
        super().__init__()
        # Guards all counts. Any thread may hold it, for an addition. Reentrant, because a finalizer may warn anywhere.
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
        """Something is as it should not be."""
        with self._lock:
            if len(self.wrong) < _MOST_FAULTS_TOLD:
                self.wrong.append(what)

    @contextlib.contextmanager
    def call(self, name: str, limit: float) -> Iterator[None]:
        """Around a call that may take `limit` seconds, and may raise what the package names and nothing else."""
        began = time.monotonic()
        try:
            yield
        except RTVIError as error:
            with self._lock:
                self.errors[name, type(error).__name__] += 1
            if type(error) not in _NAMED or not str(error):
                self.blame(f"{name}: {error!r} has no name that programs know, or says nothing")
        except Exception:  # noqa: BLE001 - it is told, and fails the soak
            self.blame(f"{name}: {traceback.format_exc()}")
        over = time.monotonic() - began - limit
        with self._lock:
            self.calls[name] += 1
            self.longest[name] = max(over, self.longest.get(name, over))
        if over > GRACE:
            self.blame(f"{name} took {over + limit:.1f} s, its limit is {limit:g} s")

    def ready(self) -> None:
        """A session has begun."""
        with self._lock:
            self.sessions += 1

    def came_back(self, times: int) -> None:
        """A client has replaced its session so often."""
        with self._lock:
            self.reconnects += times

    # -- what else is said in the process -----------------------------------------------------------------------------

    def watch(self) -> None:
        """Hear the log of the package, warnings, and errors that nobody catches, from now on."""
        package = logging.getLogger("rtvi_sync")
        package.addHandler(self)
        package.propagate = False
        warnings.simplefilter("always")
        warnings.showwarning = self._warned
        sys.unraisablehook = lambda caught: self._uncaught(caught.err_msg, caught.exc_value)
        threading.excepthook = lambda caught: self._uncaught(str(caught.thread), caught.exc_value)

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record of the log."""
        error = f" ({record.exc_info[0].__name__})" if record.exc_info and record.exc_info[0] else ""
        with self._lock:
            self.logged[record.levelname, f"{record.msg}{error}"] += 1

    def _warned(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, ResourceWarning) and str(message).startswith("An RTVIClient was dropped"):
            with self._lock:
                self.dropped += 1
        else:
            self.blame(f"{category.__name__}: {message}")

    def _uncaught(self, where: str | None, error: BaseException | None) -> None:
        self.blame(f"nobody caught, in {where}: {''.join(traceback.format_exception(error))}")
