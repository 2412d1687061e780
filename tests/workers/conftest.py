"""What the tests of all kinds of workers share: one bot, and the sessions that a test began."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.testing import BotSession, EmbeddedBot


def _never_answers(_: BotSession, message: dict[str, Any]) -> bool:
    return message["type"] == "client-message" and message["data"]["t"] == "never"


@pytest.fixture(scope="package")
def bot() -> Iterator[EmbeddedBot]:
    """A bot for the sessions of all workers; it answers everything but "never"."""
    with EmbeddedBot(handler=_never_answers, hang_over=0.2) as bot:
        yield bot


@pytest.fixture
def begun(bot: EmbeddedBot) -> Callable[[], list[BotSession]]:
    """The sessions that have begun since the last call, or since the beginning of the test, oldest first."""

    def sessions() -> list[BotSession]:
        found = []
        try:
            while True:
                found.append(bot.wait_for_session(0.0))
        except RequestTimeoutError:
            return found

    sessions()
    return sessions
