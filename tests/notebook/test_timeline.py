"""The timeline of a conversation: plain, and in a real Chromium as a notebook shows it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.notebook import Conversation
from rtvi_sync.testing import EmbeddedBot
from tests.support.chromium import chromium, launch_chromium  # noqa: F401 - fixtures
from tests.support.slowness import GUARD

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MARKUP = "</script><img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def talk() -> Iterator[Conversation]:
    """Hold a conversation of two typed turns, answered in text alone."""
    with EmbeddedBot(replies=[f"It is {MARKUP}.", "Bye!"]) as bot:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=False, speaker=False, connect_timeout=GUARD)
        talk = Conversation(client)
        with client:
            client.ask(f"What is {MARKUP}?", GUARD, audio_response=False)
            client.ask("Goodbye", GUARD, audio_response=False)
        yield talk


def test_outside_a_notebook_it_is_text(talk: Conversation) -> None:
    """The text has each turn's timeline; a client without turns has none."""
    text = repr(talk.timeline)
    assert re.findall(r"(?m)^  turn (\d)", text) == ["1", "2"]
    assert '"Goodbye" (typed)' in text
    unused = RTVIClient(transport=WebSocketTransport("ws://127.0.0.1:1"))
    assert repr(Conversation(unused).timeline) == "There was no turn."


def test_the_frame(talk: Conversation) -> None:
    """The page is one attribute of a frame whose script cannot reach the notebook, and no text ends either."""
    frame = talk.timeline._repr_html_()
    attributes = 'title="[^"<]+" sandbox="allow-scripts" srcdoc="([^"<]+)" style="[^"<]+"'
    found = re.fullmatch(f"<iframe {attributes}></iframe>", frame)
    assert found is not None
    page = html.unescape(found[1])
    assert "script-src 'sha256-" in page
    assert page.count("</script>") == 2
    assert MARKUP[-1] not in page


@pytest.mark.real
@pytest.mark.parametrize("width", [1000, 420])
def test_in_a_browser(talk: Conversation, chromium: Browser, width: int) -> None:  # noqa: F811
    """The frame has the lanes and the table of turns, by pointer and keys, and is as wide as its cell."""
    complaints: list[str] = []
    page = chromium.new_page(viewport={"width": width, "height": 700})
    page.set_default_timeout(GUARD * 1000)
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda asked: complaints.append(asked.url))
    page.set_content(f"<p>A cell.</p>{talk.timeline._repr_html_()}<p>The next one.</p>")
    frame = page.frame_locator("iframe")
    assert frame.locator("#turns tr[data-turn]").count() == 2
    lanes = frame.locator("g.lane").evaluate_all("nodes => nodes.map((node) => node.dataset.lane)")
    assert lanes == ["user", "functions", "bot", "marks"]
    assert "</script><img src=x onerror=alert(1)>\\u202e" in frame.locator("#turns").inner_text()
    frame.locator("rect.bar.bot[data-turn='2']").click()
    assert frame.locator("tr[aria-current=true]").get_attribute("data-turn") == "2"
    page.keyboard.press("k")
    assert frame.locator("tr[aria-current=true]").get_attribute("data-turn") == "1"
    for key in ("m", "Space"):  # there are no messages, and no sound
        page.keyboard.press(key)
    page.keyboard.press("?")
    assert "play" not in frame.locator("dialog").inner_text()
    assert frame.get_by_role("button", name="Play").count() == 0
    assert frame.locator("html").evaluate("node => node.scrollWidth - innerWidth") <= 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert frame.locator("html").evaluate("() => origin") == "null"
    page.close()
    assert complaints == []
