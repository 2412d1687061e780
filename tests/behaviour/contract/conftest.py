"""Fixtures of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.loopback import black_hole
from tests.support.webrtc import far_loop  # noqa: F401 - a fixture


@pytest.fixture(scope="package")
def hanging_port() -> Iterator[int]:
    """Yield a port whose connections never complete."""
    with black_hole() as port:
        yield port
