"""Rule 1 of docs/background/style.md: words that docstrings, comments, errors, log lines and Markdown do not use."""

from __future__ import annotations

import re

import pytest

from tools.prose import AREAS, BUDGETS, ROOT, english, figures, files, prose

FOLDERS = ("rtvi_sync", "tests", "tools", "benchmarks", "samples", "docs", ".github")
ODD = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|everybody|anew|his|him|he|in\s+the\s+midst|so\s+many|sooner|besides|likewise)\b",
    re.IGNORECASE,
)


def test_no_odd_words() -> None:
    """No file of the tree has an odd word."""
    odd = []
    for path in [*files(FOLDERS), *(path for path in ROOT.glob("*") if path.suffix in (".py", ".md"))]:
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


@pytest.mark.parametrize("area", AREAS)
def test_translated_english_is_rare(area: str) -> None:
    """An area has no more of each pattern than its budget. `python -m tools.prose FOLDER` lists the places."""
    found = figures(area)[1]

    assert {name: count for name, count in found.items() if count > BUDGETS[name][1]} == {}
