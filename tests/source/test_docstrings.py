"""Docstrings of tests, each of which states a promise in a sentence with its subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
WITHOUT_SUBJECT: Final = re.compile(
    r"(?:It|Its|Also|They|The same|So|This|That|These|Those|Such|Both|Neither|And|But|Or)\b"
)


def unclear(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of each test function whose docstring does not start with its subject."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test"):
            continue
        if WITHOUT_SUBJECT.match(ast.get_docstring(node) or ""):
            yield node.lineno, node.name


def test_each_docstring_of_a_test_has_its_subject() -> None:
    """The docstring of a test names its subject, so that a reader need not see its neighbours."""
    found = [
        f"{path.relative_to(TESTS.parent).as_posix()}:{line} {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in unclear(path.read_text("utf-8"))
    ]
    assert found == []


def test_a_docstring_without_its_subject_is_found() -> None:
    """A docstring that starts with a whole word of the list is found; an absent one is allowed."""
    docstrings = ("It works.", "The same again.", "Its end.", "Items work.", "Another one works.", "The sameness.")
    source = "\n".join(f'def test_{n}():\n    """{text}"""' for n, text in enumerate(docstrings))
    assert [name for _, name in unclear(f"{source}\ndef test_none(): pass")] == ["test_0", "test_1", "test_2"]
