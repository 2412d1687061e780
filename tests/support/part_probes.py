"""Questions about single parts of the package (media, devices, connections) that have no answer of their own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync.concurrency.latch import Notifier


def thread_sleeps(thread: threading.Thread | None = None) -> Callable[[], bool]:
    """Return a function to be called again and again; it says whether the thread (the main one) waits in the package,
    and has done so for ten calls."""
    ident = (thread or threading.main_thread()).ident
    assert ident is not None
    seen: list[tuple[int, int]] = []

    def sleeps() -> bool:
        frame = sys._current_frames().get(ident)
        asleep = frame is not None and frame.f_code is Notifier.wait_for.__code__
        seen.append((id(frame), frame.f_lasti) if frame is not None and asleep else (0, len(seen)))
        return len(set(seen[-10:])) == 1 and len(seen) >= 10

    return sleeps


def lock_of(part: Any) -> Any:
    """Return the lock that guards the fields of a media manager, a microphone or a transport."""
    return part._lock


def idle_threads(workers: Any) -> set[threading.Thread]:
    """Return the threads of a pool that have no work."""
    return {worker.thread for worker in workers._idle}


def forget_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget that OpenCV could not be imported, so that the next use of a camera tries again."""
    monkeypatch.setattr("rtvi_sync.media.devices.opencv_backend._failure", None)


def is_sent(source: Any, size: int) -> bool:
    """Return whether the first `size` bytes that were pushed to a source have been sent."""
    return bool(source._is_sent(size))


def has_listed(watch: Any) -> bool:
    """Return whether a watch of devices knows which there are at first."""
    return watch._known is not None


def listing_process(backend: Any) -> Any:
    """Return the process that lists the devices of a backend for its watches."""
    from rtvi_sync.media.devices import device_watch

    return device_watch._pollers[backend]._process
