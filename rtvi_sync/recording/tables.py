"""Tables for a terminal, as plain lines or rich tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..protocol.text import clean

if TYPE_CHECKING:
    from rich.table import Table


def columns(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> list[str]:
    """Return the lines of a table. The first `texts` columns are text, the others numbers."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (headers, *rows)
    ]


def rich_table(headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1, width: int = 80) -> Table:
    """Return a rich table. The first `texts` columns are text, the others numbers.

    The first column identifies the row, so it stays on one line, as do the numbers; the other texts wrap. If the first
    column would take more than two thirds of `width`, it wraps too.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table()
    is_whole = 3 * max((cell_len(row[0]) for row in rows), default=0) <= 2 * width
    for index, header in enumerate(headers):
        is_number = index >= texts
        table.add_column(
            Text(clean(header)),
            justify="right" if is_number else "left",
            no_wrap=is_number or (index == 0 and is_whole),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(clean(cell)) for cell in row))
    return table
