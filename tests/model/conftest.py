"""Tells in the summary of the test run how much the model test has done."""

from __future__ import annotations

import pytest

from .world import Tally


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of operations, and how they ended."""
    if Tally.examples:
        told = ", ".join(f"{number} {name}" for name, number in Tally.errors.most_common())
        terminalreporter.write_line(
            f"model test: {Tally.calls.total()} operations of clients and {Tally.faults} faults "
            f"in {Tally.examples} examples ({told})"
        )
