"""Sessions with the bots that have a config and actions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rtvi_sync import RTVIClient
from tests.pipecat.clients import client_of
from tests.pipecat.conftest import BotServer


@pytest.fixture(params=["pipecat_configured_0_3", "pipecat_configured_1_2"])
def server(request: pytest.FixtureRequest) -> BotServer:
    """Return a bot that has a config and actions, of each generation that had them."""
    found: BotServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def client(server: BotServer) -> Iterator[RTVIClient]:
    """Yield a client in a session with it."""
    with client_of(server) as connected:
        yield connected
