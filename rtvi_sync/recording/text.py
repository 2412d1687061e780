"""Sanitizing of a server's text for display. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST_LINE = 2000

_BREAKS = "\n\r\t\v\f\x85\u2028\u2029"
# Bidirectional overrides reorder the text around them, by which a bot could forge output of this package.
_OVERRIDES = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def clean(text: str) -> str:
    """Return a server's text as one line without anything that a terminal interprets as a command."""
    shown = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"
    return "".join(" " if char in _BREAKS else char for char in shown if char in _BREAKS or _is_harmless(char))


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """Return the lines of a table, of which the first `texts` columns are text and the others numbers."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (headers, *rows)
    ]


def _is_harmless(char: str) -> bool:
    # Cc: control characters, ESC among them. Cs: surrogates, which no stream can encode.
    return unicodedata.category(char) not in ("Cc", "Cs") and unicodedata.bidirectional(char) not in _OVERRIDES
