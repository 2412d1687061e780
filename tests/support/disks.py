"""Disks that are full."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Let no file of this process grow beyond `room` bytes: a write is cut to the room, and the next fails."""
    resource = pytest.importorskip("resource", reason="this system has no limit for the size of files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
