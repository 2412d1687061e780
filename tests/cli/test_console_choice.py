"""The choice of the console that fits the terminal."""

from __future__ import annotations

import sys

import pytest

from rtvi_sync.cli.console import LineConsole, Status
from rtvi_sync.cli.console_choice import console_for
from tests.support.installed import install_command
from tests.support.streams import Terminal

pytestmark = pytest.mark.inside


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn over what the user types."""
    monkeypatch.setenv("TERM", term)
    out = Terminal()
    console = console_for(Terminal(), out)
    assert isinstance(console, LineConsole)
    assert console.interactive
    console.show_status(Status(partial=("bot", "Hel")))
    assert out.getvalue() == ""


def test_without_prompt_toolkit_a_terminal_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """stderr names the extra to install."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "rtvi_sync.cli.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit.application", None)
    console = console_for(Terminal(), Terminal())
    assert isinstance(console, LineConsole)
    assert capsys.readouterr().err == f"For meters and keys: {install_command('cli')}\n"
