"""The sample's page in a real Chromium, with the sample's real server and a bot that the test speaks for."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.processes import free_port
from tests.support.selection import some_of
from tests.support.slowness import GUARD, takes

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
EVIL = [
    "<img src=x onerror=\"document.title='broken in'\">",
    "<script>document.title='broken in'</script>",
    "</script><svg onload=\"document.title='broken in'\">",
    "<a href=\"javascript:document.title='broken in'\">click</a>",
    "{{ 7 * 7 }} &lt;b&gt; \" ' ` ${1} \u2028\u202e \\u003cb\\u003e",
]
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error("policy: " + event.violatedDirective));
"""


@pytest.fixture(scope="module")
def address(shared_bot: EmbeddedBot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the sample as `run.py sample flask_app --url ...` starts it."""
    folder, port = tmp_path_factory.mktemp("sample"), free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "samples.flask_app", "--port", str(port), "--url", shared_bot.ws_url],
            cwd=ROOT,
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        give_up = time.monotonic() + GUARD
        while True:
            with contextlib.suppress(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < give_up
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(GUARD)


class Visitor:
    """Browser user with separate cookies, whose pages must log no errors."""

    def __init__(self, chromium: Browser, address: str, bot: EmbeddedBot) -> None:
        self.context: BrowserContext = chromium.new_context()
        self.context.set_default_timeout(GUARD * 1000)
        self.context.add_init_script(REPORT_VIOLATIONS)
        self.address = address
        self.complaints: list[str] = []
        self._bot = bot

    def open(self) -> Page:
        """Open the page in a new tab."""
        page = self.context.new_page()
        page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.goto(self.address)
        return page

    def talk(self) -> tuple[Page, BotSession]:
        """Open the page, and the bot's end of its session."""
        page = self.open()
        becomes(page, "#state", "ready")
        return page, self._bot.wait_for_session()


@pytest.fixture
def visitor(chromium: Browser, address: str, bot: EmbeddedBot) -> Iterator[Callable[[], Visitor]]:
    """Make users, who must not have seen an error in the end."""
    visitors = []

    def new() -> Visitor:
        visitors.append(Visitor(chromium, address, bot))
        return visitors[-1]

    yield new
    for each in visitors:
        each.context.close()
        assert each.complaints == []
    for session in bot.sessions:
        session.close()
        session.wait_ended()


def becomes(page: Page, selector: str, text: str) -> None:
    """Wait until an element of the page has this text."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text, timeout=GUARD * 1000)


def message(type_: str, **data: Any) -> dict[str, Any]:
    """Return a message of the bot."""
    return {"label": "rtvi-ai", "type": type_, "data": data}


def shows(page: Page, *lines: tuple[str, str]) -> None:
    """Wait until the transcript becomes these lines: whose each is, and its text."""
    from playwright.sync_api import expect

    items = page.locator("#transcript li")
    expect(items).to_have_text([text for _, text in lines], use_inner_text=False)
    assert [item.get_attribute("class") for item in items.all()] == [who for who, _ in lines]


def test_the_transcript_appears_live(visitor: Callable[[], Visitor]) -> None:
    """What both say is on the page as it is said: each is seen before the next is sent."""
    page, session = visitor().talk()
    session.send(message("user-transcription", text="What ti", final=False))
    shows(page, ("you interim", "What ti"))
    session.send(message("user-transcription", text="What time is it?", final=True))
    shows(page, ("you", "What time is it?"))
    session.send(message("bot-transcription", text="It is noon."))
    shows(page, ("you", "What time is it?"), ("bot", "It is noon."))
    page.fill("#text", "Thanks")
    page.press("#text", "Enter")
    session.wait_for_message("send-text", where=lambda sent: sent["data"]["content"] == "Thanks")
    lines = [("you", "What time is it?"), ("bot", "It is noon."), ("you", "Thanks"), ("bot", "You said: Thanks")]
    shows(page, *lines)
    page.reload()
    shows(page, *lines)  # the same session: the log is read again
    assert session.ended is None


@pytest.mark.matrix
def test_an_answer_that_no_transcript_has(visitor: Callable[[], Visitor]) -> None:
    """What follows the last sentence is told in no transcript, or with the next answer: the page has each, whole."""
    page, session = visitor().talk()
    for question, told, written in (("Me?", ["You."], "You. And me"), ("Him?", ["And me", "He!"], "He!")):
        session.send(message("user-transcription", text=question, final=True))
        session.send(message("bot-llm-started"))
        for text in told:
            session.send(message("bot-transcription", text=text))
        session.send(message("bot-llm-text", text=written))
        session.send(message("bot-llm-stopped"))
        page.locator("li.bot", has_text=written).wait_for()
    shows(page, ("you", "Me?"), ("bot", "You. And me"), ("you", "Him?"), ("bot", "He!"))


@pytest.mark.parametrize(
    "kind",
    some_of(["user-transcription", "bot-transcription", "bot-output", "error", "send-text"], "bot-output", "error"),
)
def test_markup_is_shown_as_text(visitor: Callable[[], Visitor], kind: str) -> None:
    """Markup in any message, of user or bot, is shown as text and not executed."""
    page, session = visitor().talk()
    for number, text in enumerate(EVIL):
        if kind == "send-text":
            page.fill("#text", text)
            page.press("#text", "Enter")
            page.locator("li.bot").nth(number).wait_for()  # a bot that is interrupted answers with nothing
        elif kind == "error":
            session.send(message("error", error=text, fatal=False))
            becomes(page, "#notice", f"The bot reports an error: {text}")
        else:
            session.send(message(kind, text=text, final=True))
    if kind != "error":
        page.locator("li").nth(len(EVIL) - 1).wait_for()
        mine = page.locator("li.bot" if kind.startswith("bot") else "li.you")
        assert mine.evaluate_all("items => items.map((item) => item.textContent)") == EVIL
    assert page.locator("#transcript *:not(li), #notice *").count() == 0
    assert page.title() == "Talk to a bot"


def test_who_leaves_ends_the_bots_session(visitor: Callable[[], Visitor]) -> None:
    """A session ends within 10 s after its page navigates away or its tab is closed; other users keep theirs."""
    (ada, at_ada), (bob, at_bob), (_, at_eve) = (visitor().talk() for _ in range(3))
    ada.goto("about:blank")
    bob.close()
    with takes(10.0):
        for session in (at_ada, at_bob):
            assert session.wait_ended(GUARD).initiator == "client"
    assert at_eve.ended is None


def test_two_tabs_and_the_button(visitor: Callable[[], Visitor]) -> None:
    """Two tabs of a user show one session; if one of them ends it, it is over in both, and can be started again."""
    user = visitor()
    page, session = user.talk()
    other = user.open()
    session.send(message("bot-transcription", text="Hello, both."))
    for tab in (page, other):
        shows(tab, ("bot", "Hello, both."))
    other.click("#end")
    for tab in (page, other):
        becomes(tab, "#notice", "The conversation was ended.")
    assert session.wait_ended().initiator == "client"
    page.click("#again")
    becomes(page, "#state", "ready")
    shows(page)


def follows(page: Page) -> None:
    """Wait until the page has an open stream."""
    page.locator("#end:enabled").wait_for()


@pytest.mark.matrix
def test_a_page_that_is_loaded_again_and_again(visitor: Callable[[], Visitor]) -> None:
    """Faster than heartbeats find that the one before is gone: the last one lives."""
    page, session = visitor().talk()
    for _ in range(8):
        follows(page)
        page.reload()
    follows(page)
    session.send(message("bot-transcription", text="Still here?"))
    shows(page, ("bot", "Still here?"))


@pytest.mark.matrix
def test_one_page_too_many_waits(visitor: Callable[[], Visitor]) -> None:
    """A page too many says why it shows nothing, disturbs no other page, and follows when one of them is closed."""
    user = visitor()
    first, session = user.talk()
    pages = [first, *(user.open() for _ in range(3))]
    for page in pages:
        follows(page)
    late = user.open()
    becomes(late, "#notice", "This page follows the conversation as soon as you close one of the others.")
    session.send(message("bot-transcription", text="Hello, four."))
    for page in pages:
        shows(page, ("bot", "Hello, four."))
    pages.pop().close()
    shows(late, ("bot", "Hello, four."))
    becomes(late, "#notice", "")
    assert all("429" in each for each in user.complaints)
    user.complaints.clear()
