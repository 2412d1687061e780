"""The end of a session whose pages talk."""

from __future__ import annotations

import threading

from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD, takes
from tests.support.talking_page import (
    RATE,
)

from .talking import LONG, Serve


def test_the_user_ends_it(serve: Serve, bot: EmbeddedBot) -> None:
    """A page that ends the session ends the bot's session politely, and gets the reason."""
    user = serve().user()
    page = user.talk()
    page.send({"type": "end"})
    assert page.closed() == 1000
    assert page.events[-1]["data"] == {"reason": "user"}
    assert bot.wait_for_session().wait_ended(GUARD).initiator == "client"
    assert user.http.get("/bot/session").status_code == 410


def test_the_bot_ends_it(serve: Serve, bot: EmbeddedBot) -> None:
    """A page whose bot ends the session gets the reason, and is closed."""
    page = serve().user().talk()
    bot.wait_for_session().close()
    assert page.closed() == 1000
    assert page.events[-1]["event"] == "relayEnd"


def test_the_user_leaves(serve: Serve, bot: EmbeddedBot) -> None:
    """A session without a page ends after `leave_timeout`; one with a page that only listens does not."""
    site = serve(leave_timeout=0.5, heartbeat_interval=0.1)
    page = site.user().talk()
    session = bot.wait_for_session()
    threading.Event().wait(1.0)
    assert session.ended is None
    page.close()
    with takes(2.0):
        assert session.wait_ended(GUARD).initiator == "client"


def test_the_blueprint_is_closed(serve: Serve, bot: EmbeddedBot) -> None:
    """All pages end with it, also while the bot speaks to one that does not play."""
    with EmbeddedBot(replies=[LONG]) as speaker:
        site = serve(to=speaker)
        pages = [site.user().talk(plays=False) for _ in range(2)]
        pages[0].send({"type": "text", "text": "Tell me."})
        pages[0].wait_for(lambda page: len(page.audio) > RATE)
        with takes(2.0):
            site.blueprint.close()
        assert [page.closed() for page in pages] == [1000, 1000]
