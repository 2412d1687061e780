"""The pages of the reference: those that a tool writes are fresh, and each public name is on one of them."""

from __future__ import annotations

import importlib
import re
from collections import Counter

import pytest

from rtvi_sync import RTVIClient
from tools.reference import FOLDER, MODULES, pages

DIRECTIVE = re.compile(
    r"^\.\. (?:auto|py:)(?:class|function|exception|data|module):: (rtvi_sync\.[\w.]+)", re.MULTILINE
)
PAGES = {page.name: page.read_text("utf-8") for page in FOLDER.glob("*.md")}


@pytest.mark.parametrize("name", pages())
def test_the_page_is_what_the_tool_writes(name: str) -> None:
    """A page that a tool writes agrees with the code."""
    assert PAGES[name] == pages()[name], "run: python -m tools.reference"


def test_each_row_is_whole() -> None:
    """Only an event without data has an empty cell in a table, and no cell has a bar that ends it early."""
    lines = "\n".join(pages().values()).splitlines()
    rows = [line.replace("\\|", "").strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    assert len(rows) > 200
    assert {len(row) for row in rows} == {2, 3}
    assert all(row[-1] for row in rows)


def test_an_option_with_several_values() -> None:
    """An option with several values has the names of all, as in the help."""
    assert "| `--export FORMAT OUT` | " in pages()["cli.md"]


def test_each_public_name_is_on_one_page() -> None:
    """Each name of an `__all__` is described once; an error that two modules export, under its shorter name."""
    described = Counter(name for text in PAGES.values() for name in DIRECTIVE.findall(text))
    public = {
        name: f"{module}.{name}" for module in reversed(MODULES) for name in importlib.import_module(module).__all__
    }

    assert [name for name, times in described.items() if times > 1] == []
    assert [address for address in public.values() if address not in described] == []


def test_each_method_of_the_client_is_on_its_page_once() -> None:
    """The page of `RTVIClient` has each public method and property."""
    listed = re.findall(r"^\.\. auto(?:method|property):: RTVIClient\.(\w+)$", PAGES["client.md"], re.MULTILINE)

    assert sorted(listed) == sorted(name for name in dir(RTVIClient) if not name.startswith("_"))


def test_each_class_to_know_has_an_example() -> None:
    """A page of one class or function has an example, which the tests of the docs run."""
    single = {name for name, text in PAGES.items() if len(DIRECTIVE.findall(text)) == 1 and name != "index.md"}

    assert len(single) >= 21
    assert [name for name in sorted(single) if "```python" not in PAGES[name]] == []
