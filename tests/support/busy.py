"""Busy threads of this process, and whether other programs are busy."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def busy_threads(number: int) -> Iterator[None]:
    """Run this many Python threads that compute all the time."""
    end = threading.Event()

    def compute() -> None:
        value = 1
        while not end.is_set():
            for _ in range(1000):
                value = value * 7 % 1_000_003

    threads = [threading.Thread(target=compute) for _ in range(number)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        end.set()
        for thread in threads:
            thread.join()


def others_compute() -> bool:
    """Return whether other programs take the processors from busy threads, which hold the GIL while they wait for
    one.
    """
    with busy_threads(2):
        began, spent = time.monotonic(), time.process_time()
        time.sleep(2.0)
        return time.process_time() - spent < 0.9 * (time.monotonic() - began)


def undisturbed(attempt: Callable[[], T], is_good: Callable[[T], bool]) -> T:
    """Return the result of an attempt, the first that is good or that no other program disturbed; of five the last."""
    for _ in range(5):
        result = attempt()
        if is_good(result) or not others_compute():
            break
    return result
