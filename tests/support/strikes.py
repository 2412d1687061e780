"""Exceptions that a signal handler raises at many instants of a call, as Ctrl-C may."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from types import FrameType

import pytest

from tests.support.measuring import AFTER_COVERAGE, in_coverage

#: For tests that use `Strikes`.
needs_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the platform has no interval timers")


class StruckError(KeyboardInterrupt):
    """Stands for Ctrl-C."""


class Strikes:
    """Interrupts calls of the main thread, in its block."""

    def __init__(self) -> None:
        self._rng = random.Random(8)
        self._is_armed = False

    def __enter__(self) -> Strikes:
        self._before = signal.signal(signal.SIGALRM, self._handle)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._report
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        sys.unraisablehook = self._hook

    def strike(self, call: Callable[[], object]) -> None:
        """Repeat `call()` until `StruckError` is raised in it, at most 0.4 ms after its start."""
        try:
            self.strike_in(self._rng.uniform(2e-5, 4e-4))
            while self._is_armed:
                call()
        except StruckError:
            pass

    def strike_in(self, seconds: float) -> None:
        """Interrupt the main thread at that time, unless `rest()` is called before."""
        self._is_armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def rest(self) -> None:
        """Disarm the timer."""
        self._is_armed = False

    def _report(self, raised: sys.UnraisableHookArgs) -> None:
        # Python only reports what is raised in a finalizer, and in a callback of the garbage collector.
        if raised.exc_type is not StruckError:
            self._hook(raised)

    def _handle(self, _: int, frame: FrameType | None) -> None:
        if in_coverage(frame):
            signal.setitimer(signal.ITIMER_REAL, AFTER_COVERAGE)
        elif self._is_armed:
            self._is_armed = False
            raise StruckError
