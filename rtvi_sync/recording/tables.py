"""Tables for a terminal, as plain lines or drawn by rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol.text import clean

if TYPE_CHECKING:
    from rich.table import Table


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


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> Table:
    """Return a table of rich, of which the first `texts` columns are text and the others numbers.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, header in enumerate(headers):
        table.add_column(Text(clean(header)), justify="left" if index < texts else "right")
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table
