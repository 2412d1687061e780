"""A notebook's output; a bot cannot put markup into it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.conversation.record import TurnRecord, TurnTimings
from rtvi_sync.notebook.page import table_html, table_text, transcript_html, transcript_text
from rtvi_sync.protocol.text import clean

pytestmark = pytest.mark.inside


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


def turn(**fields: Any) -> TurnRecord:
    """Return a turn with these fields."""
    return TurnRecord(**{"number": 1, "session": 1, "initiator": "user", **fields})


@given(st.text(), st.text(), st.text(), st.text())
def test_no_text_becomes_markup(user: str, bot: str, spoken: str, reason: str) -> None:
    """All words of both sides stay text."""
    said = turn(modality="audio", user_text=user, bot_text=bot, spoken_text=spoken, spoken_exact="word")
    page = Reader(transcript_html([said], reason))
    assert set(page.tags) <= {"div", "b", "i", "span"}
    assert page.attributes <= {"style"}
    assert clean(user) in page.text
    assert clean(bot) in page.text


def test_markup_is_seen_as_text() -> None:
    """A script element, an image with a handler, and a character reference are escaped."""
    hostile = "<script>alert(1)</script><img src=x onerror='alert(2)'>&lt;b&gt;\"'"
    page = transcript_html([turn(user_text=hostile, bot_text=hostile)], hostile)
    assert "<script" not in page
    assert "<img" not in page
    assert Reader(page).text.count(hostile) == 3


def test_what_may_still_change_is_faint() -> None:
    """Interim words and unspoken words are faint, the rest is not."""
    spoken = {"bot_text": "One & two.", "spoken_text": "One &", "spoken_exact": "word"}
    turns = [turn(modality="text", user_text="So", **spoken), turn(modality="audio", user_text="well")]
    page = transcript_html(turns, "ready")
    faint = re.findall(r'<(\w+) style="opacity: 0.55">(.*?)</\1>', page)
    assert faint == [("span", " two."), ("i", "well"), ("div", "ready")]
    assert "<b>bot</b> One &amp;<span" in page


def test_what_is_final_is_not_faint() -> None:
    """Words that the bot answers, an ended turn, and the words of a bot that reports no progress are not faint."""
    heard = TurnTimings(transcribed=1.0, llm_started=2.0)
    for fields in ({"modality": "text"}, {"timings": heard}, {"status": "complete"}):
        page = transcript_html([turn(**{"modality": "audio", "user_text": "So", "bot_text": "Hm.", **fields})], "")
        assert "<b>you</b> So</div><div><b>bot</b> Hm.</div>" in page


def test_a_long_text_is_cut() -> None:
    """A bot that never ends its turn does not fill the notebook."""
    page = Reader(transcript_html([turn(bot_text="x" * 100_000)], ""))
    assert page.text.count("x") == 20_000


def test_plain_text() -> None:
    """Each utterance is a line; the last line is the state."""
    text = transcript_text([turn(user_text="Hello there"), turn(bot_text="Hi."), turn()], "bye\x1b[2J\nnow")
    assert text == "you: Hello there\nbot: Hi.\n(bye [2J now)"


def test_plain_text_marks_what_was_cut_off() -> None:
    """Words that an interruption cut off are in brackets; words that are still to come are not."""
    fields = {"bot_text": "Once upon a time.", "spoken_text": "Once upon", "spoken_exact": "word"}
    cut, coming, unknown = (
        turn(status="interrupted", **fields),
        turn(**fields),
        turn(status="interrupted", **{**fields, "spoken_exact": None}),
    )
    assert transcript_text([cut, coming, unknown], "").splitlines()[:-1] == [
        "bot: Once upon [not heard: a time.]",
        "bot: Once upon a time.",
        "bot: Once upon a time.",
    ]
    cut = turn(status="interrupted", bot_text="No.", spoken_text="", spoken_exact="sentence")
    assert transcript_text([cut], "") == "bot: [not heard: No.]\n()"


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
