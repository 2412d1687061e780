"""The choice of the console that fits the terminal."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rtvi_sync.installation import install_command

from .console import Console, LineConsole
from .screen import PlainScreen, screen_for


def console_for(stdin: TextIO | None = None, stdout: TextIO | None = None) -> Console:
    """Return the console for two streams (None: this process's): with prompt_toolkit if installed, on a terminal."""
    stdin, stdout = stdin or sys.stdin, stdout or sys.stdout
    if stdin is None or not stdin.isatty():
        return LineConsole(stdin, screen_for(stdout))
    if stdout.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown"):
        try:
            from .terminal import TerminalConsole

            return TerminalConsole(stdout)
        except ModuleNotFoundError:
            print(f"For meters and keys: {install_command('cli')}", file=sys.stderr)
    # The terminal itself echoes what is typed: nothing may be drawn over it.
    return LineConsole(stdin, PlainScreen(stdout))
