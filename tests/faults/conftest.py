"""Tells in the summary of the test run how much of the fault table it has been through."""

from __future__ import annotations

import pytest

from .side_by_side import Tally, tell


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and the number of combinations."""
    if Tally.combinations:
        for line in tell():
            terminalreporter.write_line(line)
