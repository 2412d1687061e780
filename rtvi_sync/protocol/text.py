"""Text of the other side inside messages of ours: exceptions, logs, whatever may reach a terminal."""

from __future__ import annotations

MAX_LENGTH = 500


def one_line(text: str) -> str:
    """`text` as one short line of which a terminal obeys nothing.

    Line breaks, control characters, and those that turn the direction of the text around them become blanks.
    """
    return "".join(c if c.isprintable() else " " for c in text[:MAX_LENGTH])
