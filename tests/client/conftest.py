"""Fixtures for the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.http_server import ScriptedServer, scripted_server


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """An HTTP server whose answers the test scripts."""
    with scripted_server() as running:
        yield running
