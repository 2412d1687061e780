"""A bot, and applications that relay between it and the users of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flask
import pytest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.support.chromium import chromium, launch_chromium  # noqa: F401 - fixtures

from .browser import client_for, site_of


@pytest.fixture(scope="package")
def shared_bot() -> Iterator[EmbeddedBot]:
    """Yield a bot that answers each text in writing."""
    with EmbeddedBot() as bot:
        yield bot


@pytest.fixture
def bot(shared_bot: EmbeddedBot) -> EmbeddedBot:
    """Return the bot, with the sessions of this test alone."""
    try:
        while True:
            shared_bot.wait_for_session(0.0)
    except RequestTimeoutError:
        return shared_bot


@pytest.fixture
def relay(bot: EmbeddedBot) -> Iterator[Callable[..., flask.Flask]]:
    """Return a function that makes applications with a relay, by options of the blueprint and of its clients."""
    blueprints = []

    def make(client_options: dict[str, Any] | None = None, **options: Any) -> flask.Flask:
        blueprint = RTVIBlueprint(lambda _: client_for(bot.ws_url, **(client_options or {})), **options)
        blueprints.append(blueprint)
        return site_of(blueprint)

    yield make
    for blueprint in blueprints:
        blueprint.close()
