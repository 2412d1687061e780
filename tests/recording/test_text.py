"""Sanitizing of text that a terminal shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync.protocol.text import LONGEST_LINE
from rtvi_sync.recording.text import clean

pytestmark = pytest.mark.inside


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
