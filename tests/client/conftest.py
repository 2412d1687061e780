"""Fixtures of this folder's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.testing import EmbeddedBot
from tests.support.client_fixtures import no_threads_before  # noqa: F401 - a fixture
from tests.support.clients import acting_bot, memory_client
from tests.support.fake_devices import FakeBackend, machine_of
from tests.support.limits import changed
from tests.support.limits import limits as limits
from tests.support.slowness import GUARD


@pytest.fixture
def old() -> Iterator[RTVIClient]:
    """Yield a connected client of a bot with actions."""
    with memory_client(acting_bot) as connected:
        yield connected


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    """Yield the machine of the test's clients."""
    fake = FakeBackend()
    # A speaker that finds the interpreter busy opens its device again at any time. Here openings are counted.
    with machine_of(fake), changed(contended_wait=math.inf):
        yield fake


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot that listens on the loopback interface."""
    with EmbeddedBot() as running:
        yield running


@pytest.fixture
def client_of(bot: EmbeddedBot, backend: FakeBackend) -> Iterator[Callable[..., RTVIClient]]:
    """Make clients of the bot; all are disconnected after the test."""
    made: list[RTVIClient] = []

    def make(**options: Any) -> RTVIClient:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), **{"connect_timeout": GUARD, **options})
        made.append(client)
        return client

    yield make
    for client in made:
        client.disconnect()
    assert backend.open == []
