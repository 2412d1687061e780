"""Text of a server, made fit to be shown. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST_LINE = 2000

_BREAKS = "\n\r\t\v\f\x85\u2028\u2029"
# They change how text around them is shown, which lets a bot forge what seems to be ours.
_OVERRIDES = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def clean(text: str) -> str:
    """Text of a server as one line that no terminal takes for a command."""
    shown = text if len(text) <= LONGEST_LINE else text[: LONGEST_LINE - 1] + "…"
    return "".join(" " if char in _BREAKS else char for char in shown if char in _BREAKS or _harmless(char))


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """The lines of a table. The first `texts` columns are text, the others are numbers."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (headers, *rows)
    ]


def _harmless(char: str) -> bool:
    # Cc: control characters, ESC among them. Cs: halves of characters, which no stream can encode.
    return unicodedata.category(char) not in ("Cc", "Cs") and unicodedata.bidirectional(char) not in _OVERRIDES
