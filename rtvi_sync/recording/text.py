"""A server's text in lines that a terminal shows. Pure."""

from __future__ import annotations

from ..protocol.text import LONGEST_LINE, one_line


def clean(text: str) -> str:
    """Return a server's text as one line of at most `LONGEST_LINE` characters; see `one_line()`."""
    return one_line(text, LONGEST_LINE)
