"""The layers of the package, drawn from the import contract in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from .drawing import EDGE, FAINT, INK, WIDTH, Drawing

ROOT: Final = Path(__file__).parents[2]
_ROW, _GAP, _LINE, _LETTER = 34, 6, 22, 8.1  # pixels
_ARROW = 56  # pixels at the right, for the arrow
_SHADES: Final = ("#eff6ff", "#dbeafe")


def draw() -> str:
    """Return the picture: a row for each layer, with a box for each group of modules that may import each other."""
    layers = [layer for layer in layers_of(ROOT) if layer != "__main__"]
    width = WIDTH - 28 - _ARROW
    rows = [[_lines(group.split(" : "), width - 24) for group in layer.split(" | ")] for layer in layers]
    heights = [_ROW + _LINE * (max(map(len, row)) - 1) for row in rows]
    bottom = 14 + sum(heights) + _GAP * (len(rows) - 1)
    drawing = Drawing(WIDTH, bottom + 14, "The layers of rtvi_sync: each imports only those below it")
    y = 14.0
    for index, (row, height) in enumerate(zip(rows, heights, strict=True)):
        letters = sum(len(lines[0]) + 3 for lines in row)
        x = 14.0
        for lines in row:
            share = (width - _GAP * (len(row) - 1)) * (len(lines[0]) + 3) / letters
            drawing.box(x, y, share, height, fill=_SHADES[index % 2], edge=EDGE)
            for number, line in enumerate(lines):
                middle = y + height / 2 + _LINE * (number - (len(lines) - 1) / 2)
                drawing.text(x + share / 2, middle, line, anchor="middle", ink=INK)
            x += share + _GAP
        y += height + _GAP
    right = WIDTH - 14 - _ARROW / 2
    drawing.path(f"M{right:g} 18V{bottom - 4:g}", tip=True)
    drawing.upright(right + 16, bottom / 2, "imports", ink=FAINT)
    return drawing.svg()


def layers_of(root: Path) -> list[str]:
    """Return the lines of the contract, the highest layer first. Python 3.10 cannot read TOML without a package."""
    text = (root / "pyproject.toml").read_text("utf-8")
    found = re.search(r"^layers = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert found is not None, "pyproject.toml has the layers"
    return re.findall(r'"(.+)"', found[1])


def _lines(names: list[str], width: float) -> list[str]:
    """Break names into lines that fit a box."""
    lines = [names[0]]
    for name in names[1:]:
        longer = f"{lines[-1]} · {name}"
        if len(longer) * _LETTER <= width:
            lines[-1] = longer
        else:
            lines.append(name)
    return lines
