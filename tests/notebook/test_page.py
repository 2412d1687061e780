"""A notebook's output; a bot cannot put markup into it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.notebook.page import table_html, table_text, transcript_html, transcript_text
from rtvi_sync.notebook.turns import Turn, Turns

from .events import Script


class Reader(HTMLParser):
    """Parses a page as a browser does: its elements and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data: str) -> None:
        """Record text."""
        self.text += data


def turn(**fields: Any) -> Turn:
    """Return a turn with these fields."""
    return attrs.evolve(Turn(1, 0.0, 0.0), **fields)


@given(st.text(), st.text(), st.text(), st.text())
def test_no_text_becomes_markup(user: str, interim: str, bot: str, reason: str) -> None:
    """All words of both sides stay text."""
    script, turns = Script(), Turns()
    for event in (script.typed(user), script.heard(interim, final=False), script.said(bot), script.word(bot[:3])):
        turns.update(event)
    page = Reader(transcript_html(turns.snapshot(), reason))
    assert set(page.tags) <= {"div", "b", "i", "span"}
    assert page.attributes <= {"style"}
    (shown,) = turns.snapshot()
    assert shown.user in page.text
    assert shown.interim in page.text
    assert shown.bot in page.text


def test_markup_is_seen_as_text() -> None:
    """A script element, an image with a handler, and a character reference are escaped."""
    hostile = "<script>alert(1)</script><img src=x onerror='alert(2)'>&lt;b&gt;\"'"
    page = transcript_html([turn(user=hostile, bot=hostile, interim=hostile)], hostile)
    assert "<script" not in page
    assert "<img" not in page
    assert Reader(page).text.count(hostile) == 4


def test_what_may_still_change_is_faint() -> None:
    """Interim words and unspoken words are faint, the rest is not."""
    script, turns = Script(), Turns()
    for event in (
        script.typed("So"),
        script.heard("well", final=False),
        script.said("One & two."),
        script.progress("One &", " two."),
    ):
        turns.update(event)
    page = transcript_html(turns.snapshot(), "ready")
    faint = re.findall(r'<(\w+) style="opacity: 0.55">(.*?)</\1>', page)
    assert faint == [("i", "well"), ("span", "two."), ("div", "ready")]
    assert "<b>bot</b> One &amp; <span" in page


def test_plain_text() -> None:
    """Each utterance is a line; the last line is the state."""
    text = transcript_text([turn(user="Hello", interim="there"), turn(bot="Hi."), turn()], "bye\x1b[2J\nnow")
    assert text == "you: Hello there\nbot: Hi.\n(bye[2J now)"


def test_tables() -> None:
    """Headers and captions are text, cells are trusted HTML."""
    page = table_html("a < b", ("<turn>", "you"), [("1", "<audio></audio>")])
    assert Reader(page).tags == ["div", "table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td", "audio"]
    assert "<turn>" in Reader(page).text
    assert not table_html("", ("turn",), []).startswith("<div>")
    assert table_text("Seconds\nof each", ("turn", "you"), [("1", "0.5")]).splitlines() == [
        "Seconds",
        "of each",
        "turn  you",
        "1     0.5",
    ]
