"""Attempts to connect whose limit passes in a phase, or which succeed, on a machine however slow or busy."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rtvi_sync import ConnectionTimeoutError, RTVIClient
from tests.support.clients import manager_of
from tests.support.slowness import GUARD, LIMITS, takes

# How much longer than its limit the end of an attempt may take on an idle machine, in seconds.
TOLERANCE = 1.0


def connect_within(client: RTVIClient, limit: float = GUARD) -> None:
    """Connect with this limit from now on, whatever the client was made with."""
    manager_of(client)._limit = limit
    client.connect()


def timed_out(phase: str, attempt: Callable[[float], object], says: str = "") -> ConnectionTimeoutError:
    """Return the error of an attempt whose limit passes in `phase`.

    Args:
        phase: where the attempt hangs.
        attempt: makes it within the given seconds; called again with more if they have passed before.
        says: a pattern that is found in the error.
    """
    for limit in LIMITS:
        with takes(limit + TOLERANCE, at_least=limit), pytest.raises(ConnectionTimeoutError) as caught:
            attempt(limit)
        if caught.value.phase == phase and re.search(says, str(caught.value)):
            break
    assert caught.value.phase == phase
    assert re.search(says, str(caught.value)), str(caught.value)
    return caught.value
