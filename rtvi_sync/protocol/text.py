"""Text of the peer in exceptions, logs and other output that may reach a terminal."""

from __future__ import annotations

import unicodedata

MAX_LENGTH = 500

# Control characters, ESC among them; surrogates, which no stream can encode; separators of lines and paragraphs.
_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Bidirectional overrides reorder the text around them, by which a bot could forge output of this package.
_OVERRIDES = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def one_line(text: str, limit: int = MAX_LENGTH) -> str:
    """Return `text` as one line of at most `limit` characters, without control sequences.

    Line breaks, control characters and characters that change the direction of text become blanks. What joins
    characters, as in emojis and in many scripts, stays.
    """
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    if shown.isprintable():  # as nearly all text is
        return shown
    return "".join(char if _is_harmless(char) else " " for char in shown)


def _is_harmless(char: str) -> bool:
    return unicodedata.category(char) not in _CATEGORIES and unicodedata.bidirectional(char) not in _OVERRIDES
