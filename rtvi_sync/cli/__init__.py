"""The commands of `rtvi-sync`, which is also `python -m rtvi_sync`.

A command is a module of this package. It has a docstring, whose first line says what the command does and whose rest is
part of its help, a function `add_arguments(parser)` and a function `run(arguments)`, which returns the exit status.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence

from rtvi_sync import __version__
from rtvi_sync.recording.text import clean

from .program import INTERRUPTED, run_program

__all__ = ["COMMANDS", "CleanFormatter", "main", "run_program"]

COMMANDS = ("demo", "talk", "devices")


class CleanFormatter(logging.Formatter):
    """A formatter that removes control characters, because log records quote what servers send."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, and clean each of its lines."""
        return "\n".join(map(clean, super().format(record).splitlines()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the command line's words; None: those of this process.

    Returns:
        The exit status: 0, 1 after a failure, which was reported in one line on stderr, or 130 after Ctrl-C.

    Raises:
        SystemExit: The arguments are wrong (status 2), or ask for help (0).
    """
    # A process that was started by `>&-` or pythonw has no standard streams; its output is discarded.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open for the whole process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a bot may send characters that the terminal cannot show
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        given = _parser().parse_args(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    return run_program(lambda: given.run(given), f"rtvi-sync {given.command}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rtvi-sync", description="Talk to RTVI voice bots.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f".{name}", __name__)  # here, so that Ctrl-C meanwhile is no traceback
        description = module.__doc__ or ""
        command = commands.add_parser(
            name,
            help=description.partition("\n")[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser
