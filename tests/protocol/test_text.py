"""Text of the peer as one printable line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.protocol.text import LONGEST_LINE, MAX_LENGTH, MAX_QUOTE, clean, one_line, quoted, raised

pytestmark = pytest.mark.inside


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain, with blanks", "plain, with blanks"),
        ("one\ntwo\r\nthree\ttab", "one two  three tab"),
        ("\x1b[31mred\x07", " [31mred "),
        ("a\u202eb\u2028c", "a b c"),  # right-to-left override, line separator
        ("Grüße, 耳", "Grüße, 耳"),
        ("a 👩\u200d🚀\n", "a 👩\u200d🚀 "),  # the joiner stays
        ("half \ud83d", "half  "),
        ("", ""),
    ],
)
def test_what_is_not_printable_becomes_blanks(text: str, line: str) -> None:
    """A line has blanks in place of control characters, which a terminal would obey or which forge a line of a log."""
    assert one_line(text) == line


def test_long_text_is_cut() -> None:
    """The line has `MAX_LENGTH` characters at most, or as many as its limit, and ends as cut text does."""
    assert one_line("x" * MAX_LENGTH) == "x" * MAX_LENGTH
    assert one_line("x" * (MAX_LENGTH + 1)) == "x" * (MAX_LENGTH - 1) + "…"
    assert one_line("xxx", 2) == "x…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "'plain'"),
        ("it's\n\x1b[2J", '"it\'s  [2J"'),
        (5, "5"),
        (None, "None"),
        ({"a\n": "\x1b"}, r"{'a\n': '\x1b'}"),
        ("x" * 1_000_000, repr("x" * (MAX_QUOTE - 1) + "…")),
        (["x" * 1_000_000], "['" + "x" * (MAX_QUOTE - 3) + "…"),
    ],
)
def test_a_received_value_is_quoted(value: object, shown: str) -> None:
    """A quoted value is one short line of printable characters."""
    assert quoted(value) == shown


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("a\nb"), "ValueError: a b"),
        (ValueError(), "ValueError"),
        (_MuteError(), "_MuteError"),
        (OSError("x" * 10_000), "OSError: " + "x" * (MAX_LENGTH - 10) + "…"),
    ],
)
def test_an_error_that_was_raised_elsewhere(error: Exception, shown: str) -> None:
    """The class of an error stands before its text, and alone if it has none."""
    assert raised(error) == shown


def test_an_assertion_shows_no_source() -> None:
    """A line of a library's source says nothing to a user."""
    with pytest.raises(AssertionError) as caught:
        exec("assert 1 == 2")  # pytest gives an assert of its own a text
    assert raised(caught.value) == "AssertionError"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", " [31mred [0m"),
        ("\x1b]0;title\x07", " ]0;title "),
        ("\x9b2Jc1", " 2Jc1"),
        ("two\r\nlines\u2028here", "two  lines here"),
        ("a\x00b\x08c\x7f", "a b c "),
        ("abc\u202edcba\u2066x", "abc dcba x"),
        ("half \ud83d", "half  "),
        ("naïve 日本語 👩\u200d🚀", "naïve 日本語 👩\u200d🚀"),
    ],
)
def test_clean_takes_out_what_a_terminal_obeys_and_nothing_else(text: str, shown: str) -> None:
    """Escape sequences lose their escape, which becomes a blank as line breaks do; text of all languages stays."""
    assert clean(text) == shown


@given(st.text(st.characters(exclude_categories=())))
def test_clean_leaves_one_line_that_can_be_written(text: str) -> None:
    """Any text becomes printable text without control characters; clean() is idempotent."""
    shown = clean(text)
    assert shown.encode() is not None
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert clean(shown) == shown


def test_clean_cuts_what_is_too_long() -> None:
    """A bot cannot flood the terminal with one line."""
    shown = clean("x" * (10 * LONGEST_LINE))
    assert len(shown) == LONGEST_LINE
    assert shown.endswith("…")
