"""docs/reference/protocol.md agrees with the table of messages."""

from __future__ import annotations

import pytest

from rtvi_sync.protocol.dialects import FIELDS, INBOUND, OUTBOUND

from .page import PAGE, page

pytestmark = pytest.mark.inside


def test_the_page_is_up_to_date() -> None:
    """After a change of the table, `python -m tests.protocol.page` writes the page again."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "docs/reference/protocol.md is stale: run python -m tests.protocol.page"


def test_the_page_has_every_message() -> None:
    """Each row of the table is a row of the page."""
    text = PAGE.read_text(encoding="utf-8")
    missing = [name for name in (*INBOUND, *OUTBOUND, *FIELDS) if f"| `{name}` |" not in text]
    assert missing == []


def test_a_page_without_a_place_for_a_table() -> None:
    """A marker that was lost is told, instead of a table that is no longer written."""
    with pytest.raises(ValueError, match="0 places for the table of versions"):
        page("nothing")
