"""The element <rtvi-voice> on pages with a Content-Security-Policy, in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.flask.visitor import PageVisitor, notice_becomes, send, shows
from tests.support.chromium import chromium, launch_chromium  # noqa: F401 - fixtures

from .talking import Serve

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.real

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "page-that-talks.md").read_text("utf-8")
PAGE = """<!doctype html><html lang="en"><title>Talk</title><link rel="icon" href="data:,">
<script nonce="n" type="module" src="/bot/rtvi-voice.js"></script><rtvi-voice></rtvi-voice>"""


def visit(serve: Serve, browser: Browser, bot: EmbeddedBot, policy: str) -> PageVisitor:
    """Return a user of a page with a policy, whose view sets no cookie."""
    site = serve()
    site.app.add_url_rule("/talk", view_func=lambda: (PAGE, {"Content-Security-Policy": policy}))
    return PageVisitor(browser, f"{site.url}/talk", bot)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("script-src 'self'; connect-src 'self'", "`script-src 'self'; connect-src 'self'`"),
        ("script-src 'nonce-n' 'strict-dynamic'; connect-src 'self'", "or a nonce with `'strict-dynamic'`"),
    ],
)
def test_a_policy_that_suffices(
    serve: Serve,
    chromium: Browser,  # noqa: F811 - that fixture
    bot: EmbeddedBot,
    policy: str,
    named: str,
) -> None:
    """With the policies that the guide names, the first start shows no error in the console."""
    assert named in GUIDE
    user = visit(serve, chromium, bot, policy)
    page = user.open()
    send(page, "Hello")
    shows(page, ("you", "You: Hello"), ("bot", "Bot: You said: Hello"))
    user.context.close()
    assert user.complaints == []


def test_a_policy_that_blocks_the_worklet(
    serve: Serve,
    chromium: Browser,  # noqa: F811 - that fixture
    bot: EmbeddedBot,
) -> None:
    """The page names the cause, and the console the cure."""
    user = visit(serve, chromium, bot, "script-src 'nonce-n'")
    page = user.open()
    told: list[str] = []
    page.on("console", lambda said: told.append(said.text))
    send(page, "Hello")
    notice = (
        "The Content-Security-Policy of this site forbids a file that this page needs. Its administrator can allow it."
    )
    notice_becomes(page, notice)
    user.context.close()
    assert told == [
        "rtvi-voice: PolicyError: the Content-Security-Policy forbids rtvi-voice-worklet.js: "
        "add 'self' to script-src, or 'strict-dynamic' to its nonce"
    ]
    assert notice.partition(" forbids")[0] in GUIDE
