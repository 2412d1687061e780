"""The page for readers who know JavaScript's client."""

from __future__ import annotations

import re

from .accounts import accounts
from .page import PAGE, page


def test_the_page_is_what_the_command_writes() -> None:
    """`docs/reference/javascript.md` matches the accounts."""
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.behaviour.parity.page"


def test_every_name_of_the_client_is_on_the_page() -> None:
    """No method or property of the clients gets lost between the accounts and the page."""
    lines = [line for line in page().splitlines() if line.startswith("|")]
    shown = {name for line in lines for name in re.findall(r"`([^`]+)`", line)}
    names = {account.js.replace("RTVIClient.", "client.") for account in accounts() if account.owner == "RTVIClient"}

    assert len(names) > 60
    assert names - shown == set()


def test_tables_are_whole() -> None:
    """Every line of a table has four cells: nothing in a remark ends one early."""
    lines = [line for line in page().splitlines() if line.startswith("|")]

    assert {line.count("|") for line in lines} == {5}
