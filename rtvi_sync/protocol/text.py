"""Text of the peer in exceptions, logs and other output that may reach a terminal."""

from __future__ import annotations

import contextlib
import unicodedata

MAX_LENGTH = 500
#: Characters of a line that contains several texts, in a log or on a terminal.
LONGEST_LINE = 2000
MAX_QUOTE = 100

# Control characters, including ESC; surrogates, which no stream can encode; separators of lines and paragraphs.
_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Bidirectional overrides reorder the text around them. A bot could use them to forge output of this package.
_OVERRIDES = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def one_line(text: str, limit: int = MAX_LENGTH) -> str:
    """Return `text` as one line of at most `limit` characters, without control sequences.

    Line breaks, control characters and characters that change the direction of text become spaces. Characters that join
    others, as in emojis and in many scripts, stay.
    """
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    if shown.isprintable():  # as nearly all text is
        return shown
    return "".join(char if _is_harmless(char) else " " for char in shown)


def clean(text: str) -> str:
    """Return text of the peer as one line of at most `LONGEST_LINE` characters; see `one_line()`."""
    return one_line(text, LONGEST_LINE)


def encodable(text: str) -> str:
    """Return a text of the peer with "?" for half of a surrogate pair, which no file and no stream takes."""
    return text.encode(errors="replace").decode()


def quoted(value: object, limit: int = MAX_QUOTE) -> str:
    """Return a received value as Python shows it, a text in quotes: one line, of about `limit` characters."""
    return repr(one_line(value, limit)) if isinstance(value, str) else one_line(repr(value), limit)


def raised(error: BaseException, limit: int = MAX_LENGTH) -> str:
    """Return class and text of an error of a library or the application, as one line. If the error has no text, return
    only the class. Raises nothing, whatever the error is.
    """
    text = ""
    with contextlib.suppress(Exception):  # its __str__() may be the application's
        text = str(error)
    return one_line(": ".join(filter(None, (type(error).__name__, text))), limit)


def _is_harmless(char: str) -> bool:
    return unicodedata.category(char) not in _CATEGORIES and unicodedata.bidirectional(char) not in _OVERRIDES
