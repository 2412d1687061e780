"""Threads and descriptors of this process: a test's own, and the package's."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from rtvi_sync.concurrency.latch import sleepless
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from tests.support.slowness import GUARD

_FD_DIR = Path("/proc/self/fd")


@contextlib.contextmanager
def in_sleepless_thread() -> Iterator[None]:
    """Make the calling thread one that must not block."""
    me = threading.get_ident()
    sleepless.add(me)
    try:
        yield
    finally:
        sleepless.discard(me)


@contextlib.contextmanager
def holding(lock: contextlib.AbstractContextManager[object]) -> Iterator[None]:
    """Let another thread hold `lock` in the block."""
    held, released = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            released.wait(GUARD)

    holder = InThread(hold)
    assert held.wait(GUARD)
    try:
        yield
    finally:
        released.set()
        holder.get()


@contextlib.contextmanager
def switch_interval(seconds: float) -> Iterator[None]:
    """Let threads take turns this often. With a long interval, one that runs is interrupted by no other one."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def tracing(trace: Callable[[FrameType, str, Any], Any]) -> Iterator[None]:
    """Trace the calling thread in the block, as `sys.settrace()` does."""
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


class InThread:
    """Runs a function on a thread of its own, which starts at once."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._function = function
        self.thread = threading.Thread(target=self._run, name="test", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._outcome = self._function()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        """Whether the function has returned or raised."""
        return not self.thread.is_alive()

    def goes_on(self, seconds: float) -> bool:
        """Wait up to that long; return False if the function ends within that time."""
        self.thread.join(seconds)
        return not self.done

    def get(self, timeout: float = GUARD) -> Any:
        """Wait for the end of the function; return its result, or raise its error."""
        self.thread.join(timeout)
        assert self.done, "the thread has not come back"
        try:
            if self._error is not None:
                raise self._error
            return self._outcome
        finally:
            self._error = None

    def error(self, timeout: float = GUARD) -> BaseException:
        """Wait for the end of the function; return its error."""
        self.thread.join(timeout)
        assert self.done, "the thread has not come back"
        assert self._error is not None, f"it returned {self._outcome!r} and raised nothing"
        return self._error


@contextlib.contextmanager
def running(function: Callable[[], Any]) -> Iterator[InThread]:
    """Run `function()` on a thread during the block, at whose end it must have ended too."""
    thread = InThread(function)
    try:
        yield thread
    finally:
        thread.thread.join(GUARD)
        assert thread.done, "the thread of the test does not return"


def end_idle_threads() -> None:
    """End the threads of the package that only wait for something to do."""
    stop_idle_threads()


def package_threads() -> set[threading.Thread]:
    """Return the live threads that this package started, without those that only wait for something to do."""
    stop_idle_threads()
    # One that was told to end by another test may be on its way out.
    threads = threading.enumerate()
    return {
        thread for thread in threads if thread.name.startswith("rtvi-") and not thread.name.startswith("rtvi-idle-")
    }


def open_descriptors() -> dict[str, str]:
    """Return number and target of each open descriptor, or nothing where the system does not tell."""
    found = {}
    try:
        numbers = os.listdir(_FD_DIR)
    except FileNotFoundError:
        return {}
    for number in numbers:
        try:
            target = os.readlink(f"{_FD_DIR}/{number}")
        except OSError:  # the descriptor of the listing itself
            continue
        # Descriptors of files that libraries load lazily and keep are not connections.
        if target.startswith(("socket:", "pipe:", "anon_inode:")):
            found[number] = target
    return found


def thread_names() -> list[str]:
    """Return the names of the live threads that the package started, without those that only wait for work."""
    return sorted(thread.name for thread in package_threads())


def own_threads() -> list[str]:
    """Return the same without the threads of embedded bots, which belong to the test."""
    return [name for name in thread_names() if not name.startswith("rtvi-bot-")]


def reads(thread: threading.Thread) -> bool:
    """Return whether it is the thread of the package that reads the network now, which has no name of its own."""
    return thread.name.startswith("rtvi-worker-") and thread.ident in sleepless


def workers_of_package() -> list[str]:
    return sorted(thread.name for thread in package_threads() if "-worker-" in thread.name and not reads(thread))


def count_descriptors() -> int:
    """Return how many descriptors the process has open, except in idle threads."""
    stop_idle_threads()
    return len(os.listdir("/dev/fd"))


def media_threads() -> list[str]:
    """Return the names of the live threads of microphones and speakers, and of sources and sinks in their place."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("rtvi-mic", "rtvi-speaker"))]
