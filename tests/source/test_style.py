"""Rule 1 of docs/background/style.md: words that docstrings, comments, errors, log lines and Markdown do not use."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("rtvi_sync", "tests", "tools", "benchmarks", "samples", "docs", ".github")
ODD = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|everybody|anew|his|him|he|in\s+the\s+midst|so\s+many|sooner|besides|likewise)\b",
    re.IGNORECASE,
)
LOGGERS = ("log", "_log", "logger", "warnings")


def files() -> list[Path]:
    """Return every Python file and Markdown page of the project."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return sorted(path for path in [*ROOT.glob("*"), *found] if path.suffix in (".py", ".md"))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text of a file that is English, with the number of its first line."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value  # a docstring, of an attribute too
        elif isinstance(node, ast.Raise) or is_log_call(node):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def is_log_call(node: ast.AST) -> bool:
    """Tell whether a node calls a method of a logger or of `warnings`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in LOGGERS
    )


def english(text: str) -> str:
    """Return a text without its code in backticks."""
    return re.sub(r"`[^`\n]*`", "`", text)


def test_no_odd_words() -> None:
    """No file of the tree has an odd word."""
    odd = []
    for path in files():
        for line, text in prose(path):
            plain = english(text)
            for match in ODD.finditer(plain):
                number = line + plain.count("\n", 0, match.start())
                odd.append(f"{path.relative_to(ROOT)}:{number}: {match[0]}")

    assert odd == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Whoever calls, he waits.", ["Whoever", "he"]),
        ("so\nmany seconds", ["so\nmany"]),
        ("The `he` in code and the word the.", []),
        ("Somebody else's", ["Somebody"]),
    ],
)
def test_odd_words_are_found(text: str, found: list[str]) -> None:
    """A word is found in any case and over a line break, and not inside of code or another word."""
    assert ODD.findall(english(text)) == found
