"""Tells in the summary of the test run how much of the fault table it has been through."""

from __future__ import annotations

import pytest

from . import test_fault_table


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of combinations, and how they ended."""
    endings, bad = test_fault_table.endings, test_fault_table.bad_endings
    if endings:
        told = ", ".join(f"{number} {ending}" for ending, number in endings.most_common())
        terminalreporter.write_line(
            f"fault table: {endings.total()} combinations, {f'{bad} ended badly' if bad else 'all ended well'} ({told})"
        )
