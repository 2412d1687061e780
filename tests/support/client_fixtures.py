"""Fixtures for the tests of clients and sessions: a server, a connected client, and no threads from earlier tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rtvi_sync import RTVIClient
from tests.support.clients import memory_client
from tests.support.http_server import ScriptedServer, scripted_server
from tests.support.threads import thread_names
from tests.support.waiting import until


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """Yield an HTTP server whose answers the test scripts."""
    with scripted_server() as running:
        yield running


@pytest.fixture
def client() -> Iterator[RTVIClient]:
    """Yield a connected client of a bot that is a function."""
    with memory_client() as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_threads_before() -> None:
    """Wait until whatever an earlier test left to end by itself is gone."""
    until(lambda: not thread_names(), timeout=10.0)  # the test that has left some has failed already
