"""The page of all events and public names, which a tool writes."""

from __future__ import annotations

from tools.reference import PAGE, page


def test_the_page_is_what_the_tool_writes() -> None:
    """`docs/reference/reference.md` says what the docstrings say."""
    assert PAGE.read_text("utf-8") == page(), "run: python -m tools.reference"


def test_each_row_is_whole() -> None:
    """No cell of a table is empty but that of an event without data, and none has a bar that ends it early."""
    rows = [line.replace("\\|", "").strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert {len(row) for row in rows} == {2, 3, 4}
    assert all(row[-1] for row in rows)
