"""Lines, partial lines and tables, and that no server can command the terminal."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.cli.screen import LONGEST_LINE, PlainScreen, RichScreen, clean, screen_for


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("\x1b]0;title\x07", "]0;title"),
        ("\x9b2Jc1", "2Jc1"),
        ("two\r\nlines\u2028here", "two  lines here"),
        ("a\x00b\x08c\x7f", "abc"),
        ("abc\u202edcba\u2066x", "abcdcbax"),
        ("half \ud83d", "half "),
        ("naïve 日本語 👩\u200d🚀", "naïve 日本語 👩\u200d🚀"),
    ],
)
def test_clean_takes_out_what_a_terminal_obeys_and_nothing_else(text: str, shown: str) -> None:
    """Escape sequences lose their escape, line breaks become spaces, writing of all languages stays."""
    assert clean(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_clean_leaves_one_line_that_can_be_written(text: str) -> None:
    """Whatever a server sends becomes printable text without control characters, and stays so."""
    shown = clean(text)
    assert shown.encode() is not None
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert clean(shown) == shown


def test_clean_cuts_what_is_too_long() -> None:
    """A bot cannot flood the terminal with one line."""
    shown = clean("x" * (10 * LONGEST_LINE))
    assert len(shown) == LONGEST_LINE
    assert shown.endswith("…")


def test_plain_screen_shows_finished_lines_only() -> None:
    """Where output is kept, what may still change is not written."""
    stream = io.StringIO()
    with screen_for(stream) as screen:
        screen.partial("you  Hel")
        screen.line("you  Hello\x1b[2J")
    assert isinstance(screen, PlainScreen)
    assert stream.getvalue() == "you  Hello[2J\n"


def test_plain_table_is_aligned() -> None:
    """The first column is aligned left, numbers right, under their headers."""
    stream = io.StringIO()
    PlainScreen(stream).table("A title\nof two lines", ("turn", "first sound"), [("1", "640"), ("median", "-")])
    assert stream.getvalue().splitlines() == [
        "A title",
        "of two lines",
        "turn    first sound",
        "1               640",
        "median            -",
    ]


def test_terminal_shows_partial_text_until_the_next_line() -> None:
    """What may still change is drawn and wiped again; a finished line stays; no escape code of a server passes."""
    stream = Terminal()
    with RichScreen(stream, force_terminal=True, width=60) as screen:
        screen.partial("you  Hel\x1b]0;x\x07")
        assert "you  Hel]0;x" in stream.getvalue()
        stream.truncate(0)
        screen.line("you  [b]Hello[/b] :smile:\x1b]0;x\x07")
        screen.table("Title", ("turn", "text"), [("1", "5")])
    shown = stream.getvalue()
    assert "you  [b]Hello[/b] :smile:]0;x" in shown
    assert "you  Hel]" not in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown
    assert "Title" in shown


def test_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich is optional."""
    assert isinstance(screen_for(Terminal()), RichScreen)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(screen_for(Terminal()), PlainScreen)
