"""One time limit for a call of many steps."""

from __future__ import annotations

import os
import threading
import time

# The main thread, which runs the signal handlers, looks up so often while it waits, in seconds: on Windows no signal
# interrupts the wait for a lock, and elsewhere one that comes in the very moment before the thread falls asleep does
# not.
_SLICE = 0.2 if os.name == "nt" else 1.0


def on_main_thread() -> bool:
    """True on the only thread that signal handlers, the one behind Ctrl-C among them, interrupt."""
    return threading.get_ident() == threading.main_thread().ident


def slice_of(remaining: float | None) -> float:
    """How long one wait of `remaining` seconds (None: no limit) may last, so that no signal is missed."""
    longest = _SLICE if on_main_thread() else threading.TIMEOUT_MAX
    return longest if remaining is None else min(remaining, longest)


class Deadline:
    """A time limit that every step of a call draws on.

    Args:
        timeout: seconds from now, or None for no limit.
    """

    __slots__ = ("_end", "_start", "timeout")

    def __init__(self, timeout: float | None) -> None:
        if timeout is not None and timeout != timeout:
            raise ValueError("A time limit is a number of seconds or None, not NaN")
        self.timeout: float | None = timeout
        self._start = time.monotonic()
        self._end = None if timeout is None else self._start + timeout

    def remaining(self) -> float | None:
        """Seconds left, never below 0; None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def elapsed(self) -> float:
        """Seconds since the deadline was made."""
        return time.monotonic() - self._start

    @property
    def expired(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def sooner(self, timeout: float) -> float:
        """The smaller of `timeout` and what remains."""
        remaining = self.remaining()
        return timeout if remaining is None else min(timeout, remaining)


def join_thread(thread: threading.Thread, deadline: Deadline) -> bool:
    """Join `thread` before `deadline`; False if it is still alive. Ctrl-C interrupts the wait on every platform."""
    while thread.is_alive():
        thread.join(slice_of(deadline.remaining()))
        if deadline.expired:
            return not thread.is_alive()
    return True
