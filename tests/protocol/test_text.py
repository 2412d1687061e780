"""Text of the peer as one printable line."""

from __future__ import annotations

import pytest

from rtvi_sync.protocol.text import MAX_LENGTH, one_line


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
    """No terminal obeys the line, and it forges no line of a log."""
    assert one_line(text) == line


def test_long_text_is_cut() -> None:
    """The line has `MAX_LENGTH` characters at most, or as many as its limit, and ends as cut text does."""
    assert one_line("x" * MAX_LENGTH) == "x" * MAX_LENGTH
    assert one_line("x" * (MAX_LENGTH + 1)) == "x" * (MAX_LENGTH - 1) + "…"
    assert one_line("xxx", 2) == "x…"
