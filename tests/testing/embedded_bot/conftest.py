"""Fixtures of the tests of the embedded bot."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from websockets.sync.client import connect

from rtvi_sync.testing import EmbeddedBot

from .bot_client import Client, Talk


@pytest.fixture
def talk() -> Iterator[Talk]:
    """Return a function that connects clients; close them at the end."""
    with contextlib.ExitStack() as stack:

        def connect_to(bot: EmbeddedBot) -> Client:
            return Client(
                stack.enter_context(connect(bot.ws_url, compression=None, close_timeout=1, ping_interval=None))
            )

        yield connect_to
