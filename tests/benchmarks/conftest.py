"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.server import running


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """Yield the address of the server that peers are measured against, in a process of its own."""
    with running() as address:
        yield address
