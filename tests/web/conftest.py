"""A bot, and servers of pages that talk with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.flask.conftest import bot, shared_bot  # noqa: F401 - fixtures

from .talking import Site


@pytest.fixture
def serve(bot: EmbeddedBot) -> Iterator[Callable[..., Site]]:  # noqa: F811 - that fixture
    """Return a function that starts servers, by options of the clients and of the blueprint."""
    sites: list[Site] = []

    def start(client_options: dict[str, Any] | None = None, *, to: EmbeddedBot = bot, **options: Any) -> Site:
        sites.append(Site(to, client_options or {}, **options))
        return sites[-1]

    yield start
    for site in sites:
        site.close()
