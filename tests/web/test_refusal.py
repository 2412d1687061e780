"""Requests for a page that talks that are refused before the upgrade."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.flask.browser import User, site_of
from tests.support.talking_page import (
    connect,
    refusal_of,
)

from .talking import Serve


@pytest.mark.parametrize(
    "options",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"header": {"Sec-Fetch-Site": "cross-site"}, "origin": "https://evil.example"},
        {"header": {"Sec-Fetch-Site": "same-site"}, "suppress_origin": True},
    ],
    ids=str,
)
def test_a_page_of_another_origin(serve: Serve, options: dict[str, Any]) -> None:
    """A page of another site is refused, with the user's cookie."""
    user = serve().user()
    user.start()
    assert refusal_of(user, **options) == (403, "cross_origin")


@pytest.mark.parametrize(
    "options",
    [{}, {"header": {"Sec-Fetch-Site": "same-origin"}, "origin": "https://public.example"}, {"suppress_origin": True}],
    ids=str,
)
def test_a_page_of_this_origin(serve: Serve, options: dict[str, Any]) -> None:
    """By its origin, or by the browser's statement; and a program."""
    user = serve().user()
    user.start()
    connect(user, **options).shutdown()


def test_a_request_that_is_no_handshake(serve: Serve) -> None:
    """Each bad request is refused with its own reason, and the session continues."""
    user = serve().user()
    page = user.talk()
    assert user.http.get("/bot/voice").json()["error"] == "not_websocket"
    answer = user.http.get("/bot/voice", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    page.send({"type": "text", "text": "Hello!"})
    page.wait_for_event("relayText")


def test_a_server_without_a_socket(bot: EmbeddedBot) -> None:
    """A server that cannot open a WebSocket says how to serve."""
    blueprint = RTVIBlueprint(lambda _: RTVIClient.for_url(bot.ws_url), voice=True)
    user = User(site_of(blueprint))
    user.start()
    for multithread in (True, False):
        answer = user.http.get(
            "/bot/voice",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
            environ_overrides={"wsgi.multithread": multithread},
        )
        assert answer.status_code == 501
        assert "gunicorn --worker-class gthread" in answer.get_json()["message"]
    blueprint.close()
