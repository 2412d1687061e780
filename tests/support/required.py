"""The fate of a test whose real part is missing on this machine or system."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

#: For tests that close the descriptor of a socket, or give its number to another one.
numbered_sockets = pytest.mark.skipif(os.name == "nt", reason="sockets have no descriptor that os.closerange() closes")


def missing(what: str) -> NoReturn:
    """Skip the test, by name; where all real parts are required (RTVI_REQUIRE_REAL=1), fail it."""
    if os.environ.get("RTVI_REQUIRE_REAL") == "1":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
