"""One server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import measure
from benchmarks.server import running
from tests.support.required import missing


@pytest.fixture(scope="package")
def url() -> Iterator[str]:
    """Yield the address of the server that peers are measured against, in a process of its own."""
    with running() as address:
        yield address


def python_of(peer: str) -> str:
    """Return the Python that has the library of a peer; without it, skip the test, or fail it if all is required."""
    python = measure.python_of(peer)
    if python is None:
        missing(f"{peer} is not installed: run `python3 run.py test --matrix`")
    return python
