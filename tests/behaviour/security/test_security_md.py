"""`SECURITY.md` promises nothing that no test holds."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
DEFENDED = PAGE[PAGE.index("## Defended") : PAGE.index("## Not defended")]
ROWS = [line for line in DEFENDED.splitlines() if line.startswith("| ") and not line.startswith("| threat ")]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::[\w:]+)`", PAGE)))


@functools.cache
def names_in(path: str) -> set[str]:
    """Return the tests of a file, those in classes with the name of the class before them."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text("utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {prefix + item.name for item in inside if isinstance(item, ast.FunctionDef)}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


def test_every_named_test_exists() -> None:
    """Each test that a line names exists."""
    missing = [name for name in NAMED if name.partition("::")[2] not in names_in(name.partition("::")[0])]
    assert missing == []


def test_every_promise_names_a_test() -> None:
    """Each defence names its test, in a form that the check finds."""
    assert len(ROWS) > 20
    assert [row for row in ROWS if not re.search(r"\| `tests/[\w/]+\.py::[\w:]+`[^|]*\|$", row)] == []
    assert PAGE.count("::test_") == len(re.findall(r"`tests/[\w/]+\.py::[\w:]+`", PAGE))


def test_every_file_of_these_tests_is_named() -> None:
    """Each file of security tests is named on the page."""
    files = {f"tests/behaviour/security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert {name.partition("::")[0] for name in NAMED} >= files - {f"tests/behaviour/security/{Path(__file__).name}"}


def test_links_lead_somewhere() -> None:
    """Every relative link of the page names a file that there is."""
    targets = re.findall(r"\]\(([^)#:]+)\)", PAGE)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
