"""The hint at a server's endpoints, requested beside the request that starts a bot."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rtvi_sync import AbortController, RTVIClientParams, StartBotError
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.session.connect_request import BotURL, ConnectRequest
from tests.support.http_server import Answer, Request, ScriptedServer
from tests.support.slowness import GUARD
from tests.support.threads import InThread

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("limit", [None, GUARD])
def test_a_server_that_does_not_say_what_it_offers(
    server: ScriptedServer, limits: Callable[..., None], limit: float | None
) -> None:
    """The eval route is tried without that hint, as soon as its own limit has passed, also if the call has no limit."""
    limits(hint=0.05, grace=2 * GUARD)
    release = threading.Event()

    def hang(_: Request) -> Answer:
        release.wait(6 * GUARD)
        return Answer({})

    server.answers.update({"/start": Answer({"detail": "not allowed"}, 400), "/status": hang})
    bot_url = BotURL.parse(server.url).with_websocket_route()
    deadline = Deadline(limit)
    abort = AbortController(deadline, lambda: StartBotError("aborted"))
    sending = InThread(lambda: ConnectRequest(params=RTVIClientParams, bot_url=bot_url).send(deadline, abort))
    try:
        assert sending.get(GUARD).content == {"ws_url": bot_url.ws_url}
    finally:
        release.set()
