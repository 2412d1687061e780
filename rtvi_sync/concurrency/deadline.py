"""The time limit of a call that consists of many steps."""

from __future__ import annotations

import os
import threading

from .clock import monotonic

# The main thread runs the signal handlers, so it wakes this often while it waits, in seconds: on Windows no signal
# interrupts the wait for a lock, and elsewhere a signal that arrives just before the thread blocks does not.
_SLICE = 0.2 if os.name == "nt" else 1.0


def on_main_thread() -> bool:
    """Return whether this is the main thread, the only one that signal handlers (Ctrl-C, too) interrupt."""
    return threading.get_ident() == threading.main_thread().ident


def slice_of(remaining: float | None) -> float:
    """Return how long one block of `remaining` seconds (None: no limit) may last, so that no signal is missed."""
    is_main = threading.get_ident() == threading.main_thread().ident
    longest = _SLICE if is_main else threading.TIMEOUT_MAX
    return longest if remaining is None else min(remaining, longest)


class Deadline:
    """The time limit that all steps of a call share.

    Args:
        timeout: seconds from now, or None for no limit.
    """

    __slots__ = ("_end", "_start", "timeout")

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and timeout != timeout:
            raise ValueError("A time limit is a number of seconds or None, not NaN")
        self.timeout: float | None = timeout
        self._start = monotonic()
        self._end = None if timeout is None else self._start + timeout

    def remaining(self) -> float | None:
        """Return the seconds left, never below 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - monotonic())

    def elapsed(self) -> float:
        """Return the seconds since the deadline was made."""
        return monotonic() - self._start

    @property
    def expired(self) -> bool:
        """True if no time is left."""
        return self._end is not None and monotonic() >= self._end

    def at_most(self, timeout: float) -> float:
        """Return the seconds left, but at most `timeout`."""
        remaining = self.remaining()
        return timeout if remaining is None else min(timeout, remaining)


def join_thread(thread: threading.Thread, deadline: Deadline) -> bool:
    """Join `thread`; return False if it is alive at `deadline`. Ctrl-C interrupts the wait on every platform."""
    while thread.is_alive():
        thread.join(slice_of(deadline.remaining()))
        if deadline.expired:
            return not thread.is_alive()
    return True
