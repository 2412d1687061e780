"""Fixtures for the tests of all kinds of workers: one bot, and the sessions that a test started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.testing import BotSession, EmbeddedBot

ROOT = Path(__file__).parents[3]
# Python warns of forks with threads, which these tests need.
WARNINGS = "error,ignore:This process:DeprecationWarning"


def _never_answers(_: BotSession, message: dict[str, Any]) -> bool:
    return message["type"] == "client-message" and message["data"]["t"] == "never"


@pytest.fixture(scope="package")
def bot() -> Iterator[EmbeddedBot]:
    """Yield a bot for the sessions of all workers; it answers everything but "never"."""
    with EmbeddedBot(handler=_never_answers, hangover=0.1) as bot:
        yield bot


def new_sessions(bot: EmbeddedBot) -> list[BotSession]:
    """Return the sessions that have started since the last call, oldest first."""
    found = []
    try:
        while True:
            found.append(bot.wait_for_session(0.0))
    except RequestTimeoutError:
        return found


@pytest.fixture
def begun(bot: EmbeddedBot) -> Callable[[], list[BotSession]]:
    """Return a function that returns the sessions started since its last call, or since the start of the test."""
    new_sessions(bot)
    return lambda: new_sessions(bot)
