"""Text of the peer in exceptions, logs and other output that may reach a terminal."""

from __future__ import annotations

MAX_LENGTH = 500


def one_line(text: str) -> str:
    """Return `text` as one line of at most `MAX_LENGTH` characters, without control sequences.

    Line breaks, control characters and characters that change the direction of text become blanks.
    """
    return "".join(c if c.isprintable() else " " for c in text[:MAX_LENGTH])
