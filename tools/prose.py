"""How often the English of the project has patterns that read as translated, and where.

`python -m tools.prose` prints the figures of each area per 10,000 words, beside their budgets. `python -m tools.prose
FOLDER` prints every place in a file or folder.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
#: The folders and files of an area, whose words are counted together.
AREAS: Final = {
    "package": ("rtvi_sync",),
    "pages": ("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "AGENTS.md", "samples"),
    "tests and tools": ("tests", "tools", "benchmarks", "run.py"),
}
#: A pattern, and how many of it 10,000 words of an area may have.
BUDGETS: Final = {
    "what ...": (re.compile(r"\bwhat\b(?![^.?!]*\?)", re.IGNORECASE), 4),
    "begin": (re.compile(r"\b(?:begin|begins|beginning|began|begun)\b", re.IGNORECASE), 2),
    "come": (re.compile(r"\b(?:come|comes|came|coming)\b", re.IGNORECASE), 3),
    "that of": (re.compile(r"\b(?:that|those) of\b", re.IGNORECASE), 2),
    "not plain": (
        re.compile(r"\b(?:meanwhile|nor|all the same|(?:is|are|was|were) to be|tells? whether)\b", re.IGNORECASE),
        1,
    ),
}
_LOGGERS: Final = ("log", "_log", "logger", "warnings")
_WORDS: Final = 10_000


def files(folders: Iterable[str]) -> list[Path]:
    """Return the Python files and Markdown pages in folders of the project, or the files with these names."""
    found = [path for folder in folders for path in ((ROOT / folder).rglob("*"), [ROOT / folder])]
    return sorted({path for paths in found for path in paths if path.suffix in (".py", ".md") and path.is_file()})


@cache
def prose(path: Path) -> list[tuple[int, str]]:
    """Return each English text of a file, with the number of its first line: no code, no HTML comments."""
    return list(_texts(path))


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        text = re.sub(r"```.*?```|<!--.*?-->", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)
        yield from enumerate(("" if line.startswith("    ") else line for line in text.splitlines()), 1)
        return
    comment: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            start = start if comment else token.start[0]
            comment.append(token.string.lstrip("#: "))
        elif token.type != tokenize.NL and comment:
            yield start, "\n".join(comment)
            comment = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value  # a docstring, of an attribute too
        elif isinstance(node, ast.Raise) or is_log_call(node):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def is_log_call(node: ast.AST) -> bool:
    """Return whether a node calls a method of a logger or of `warnings`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in _LOGGERS
    )


def english(text: str) -> str:
    """Return a text without its code in backticks and the names of the parameters that it describes."""
    return re.sub(r"``[^`\n]*``|`[^`\n]*`|^ +\w+(?:, \w+)*: ", "`", text, flags=re.MULTILINE)


def places(paths: Iterable[Path]) -> Iterator[tuple[str, Path, int, str]]:
    """Yield each place of a pattern: its name, the file, the line, and the line's text."""
    for path in paths:
        for line, text in prose(path):
            plain = english(text)
            for name, (pattern, _) in BUDGETS.items():
                for match in pattern.finditer(plain):
                    before = plain.count("\n", 0, match.start())
                    yield name, path, line + before, plain.splitlines()[before].strip()


def figures(area: str) -> tuple[int, dict[str, float]]:
    """Return the number of words of an area, and the number of each pattern per 10,000 words."""
    paths = files(AREAS[area])
    words = sum(len(english(text).split()) for path in paths for _, text in prose(path))
    found = Counter(name for name, *_ in places(paths))
    return words, {name: found[name] * _WORDS / words for name in BUDGETS}


def main(arguments: list[str]) -> None:
    """Print the figures of all areas, or the places in the named files."""
    if arguments:
        for name, path, line, text in sorted(places(files(arguments)), key=lambda place: place[1:3]):
            print(f"{path.relative_to(ROOT)}:{line}: {name}: {text}")
        return
    print("per 10,000 words".ljust(17), *(f"{name} ({budget})".rjust(14) for name, (_, budget) in BUDGETS.items()))
    for area in AREAS:
        words, counts = figures(area)
        print(area.ljust(17), *(f"{count:14.1f}" for count in counts.values()), f"  of {words:,} words")


if __name__ == "__main__":
    main(sys.argv[1:])
