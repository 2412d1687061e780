"""Runs a function in a forked child and returns its result."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from tests.support.slowness import GUARD


def in_child(function: Callable[[], Any]) -> Any:
    """Return the result of `function()` in a forked child, which then ends without any clean-up of Python's.

    Raises:
        AssertionError: the function raised, with its traceback; or the child did not end in time.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # These tests lose threads on purpose.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            try:
                outcome = (True, function())
            except BaseException:
                outcome = (False, traceback.format_exc())
            os.write(writer, pickle.dumps(outcome))
        finally:
            os._exit(0)
    os.close(writer)
    try:
        report = _read_all(reader)
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
        os.waitpid(pid, 0)
    assert report, "the child did not report in time"
    succeeded, result = pickle.loads(report)
    assert succeeded, f"in the child:\n{result}"
    return result


def _read_all(reader: int) -> bytes:
    deadline = time.monotonic() + GUARD
    received = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            return received
        received += part
    return b""
