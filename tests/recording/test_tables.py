"""Tables on a terminal, plain and by way of rich."""

from __future__ import annotations

import io
import sys

import pytest

from rtvi_sync.recording.tables import columns, rich_table

pytestmark = pytest.mark.inside


def test_plain_columns() -> None:
    """The first ones are aligned to the left, the others to the right."""
    assert columns(("name", "ms"), [("a", "1"), ("long name", "100")]) == [
        "name        ms",
        "a            1",
        "long name  100",
    ]


def test_columns_of_text_and_of_numbers() -> None:
    """The first columns are aligned to the left, the others to the right."""
    pytest.importorskip("rich")
    table = rich_table(("name", "kind", "ms"), [("a", "b", "1")], texts=2)
    assert [column.justify for column in table.columns] == ["left", "left", "right"]


def test_text_is_no_markup_and_no_command() -> None:
    """A bot's text is shown unchanged, but control characters for a terminal are removed."""
    console = pytest.importorskip("rich.console")
    out = io.StringIO()
    console.Console(file=out, width=80).print(rich_table(("a",), [("[red]x[/red]\x1b[2J",)]))
    assert "[red]x[/red]" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is told by the error, and makes a plain table."""
    monkeypatch.setitem(sys.modules, "rich.table", None)
    with pytest.raises(ModuleNotFoundError):
        rich_table(("a",), [])
