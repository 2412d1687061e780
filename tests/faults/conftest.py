"""Tells in the summary of the test run how much of the fault table it has been through."""

from __future__ import annotations

import pytest

from .side_by_side import Tally


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of combinations, and how they ended."""
    if Tally.endings:
        told = ", ".join(f"{number} {ending}" for ending, number in Tally.endings.most_common())
        judged = f"{Tally.bad} ended badly" if Tally.bad else "all ended well"
        terminalreporter.write_line(f"fault table: {Tally.endings.total()} combinations, {judged} ({told})")
