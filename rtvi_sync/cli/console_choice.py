"""Chooses the console that fits the terminal."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from .console import Console, LineConsole
from .screen import PlainScreen, screen_for


def console_for(stdin: TextIO | None = None, stdout: TextIO | None = None) -> Console:
    """The console for two streams (None: those of this process): with prompt_toolkit on a terminal, if it is there."""
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    if stdin is None or not stdin.isatty():
        return LineConsole(stdin, screen_for(stdout))
    if stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown"):
        try:
            from .terminal import TerminalConsole

            return TerminalConsole(stdout)
        except ModuleNotFoundError:
            print('For meters and keys: pip install "rtvi_sync[cli]"', file=sys.stderr)
    # What is typed here stands on the terminal already: nothing may be drawn over it.
    return LineConsole(stdin, PlainScreen(stdout))
