"""The table of docs/background/environments.md: each line is tested."""

from __future__ import annotations

import ast
import re

import pytest

from .conftest import ROOT

PAGE = (ROOT / "docs" / "background" / "environments.md").read_text(encoding="utf-8")
TABLE = re.search(r"^\| environment \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
assert TABLE is not None
ROWS = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in TABLE[1].splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_line_of_the_table(row: list[str]) -> None:
    """A line of the table names the support and its means, and a test that exists."""
    environment, how, _, named = row
    assert environment
    assert how
    path, *names = named.strip("`").split("::")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        (found,) = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    assert found.name.startswith("test_")


def test_the_table_covers_every_kind() -> None:
    """No kind of process or environment that the package is made for is left out."""
    covered = " ".join(row[0] for row in ROWS)
    kinds = ("Flask", "Django", "sync", "gthread", "gevent", "--preload", "Celery", "multiprocessing", "os.fork()")
    for kind in (*kinds, "Jupyter", "asyncio", "the end of a process", "Ctrl-C", "signal"):
        assert kind in covered
