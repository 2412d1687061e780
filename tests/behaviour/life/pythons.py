"""The other Pythons of this machine."""

from __future__ import annotations

import functools
import sys

import pytest

from tools.machine import find_python

#: Minor versions of Python 3 that the package runs on.
MINORS = (10, 11, 12, 13, 14)

#: All but the one that runs the tests.
OTHERS = [minor for minor in MINORS if minor != sys.version_info[1]]


@functools.cache
def _find(minor: int) -> str | None:
    return find_python((minor,))


def python_of(minor: int) -> str:
    """Return the Python 3.`minor` of this machine; without one, skip the test."""
    found = _find(minor)
    if found is None:
        pytest.skip(f"Python 3.{minor} is not on this machine")
    return found
