"""The commands of `rtvi-sync`, which is also `python -m rtvi_sync`.

A command is a module of this package, with `_` for `-` in its name. Its docstring has a first line with the purpose of
the command, and a rest that becomes part of its help. It has a function `add_arguments(parser)` and a function
`run(arguments)`, which returns the exit status.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rtvi_sync import ConnectError, RTVIError, __version__
from rtvi_sync.concurrency.shield import shielded
from rtvi_sync.protocol.text import clean
from rtvi_sync.protocol.validation import STRING, function_taking

__all__ = ["COMMANDS", "CleanFormatter", "main", "run_program"]

COMMANDS = (
    "demo",
    "talk",
    "ask",
    "doctor",
    "load",
    "eval",
    "mcp",
    "bot",
    "devices",
    "show",
    "replay",
    "phone-hook",
    "explain",
)
# Exit statuses.
FAILED = 1
INTERRUPTED = 130


class CleanFormatter(logging.Formatter):
    """A formatter that removes control characters, because log records quote servers."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, and clean each of its lines."""
        return "\n".join(map(clean, super().format(record).splitlines()))


class CommandParser(argparse.ArgumentParser):
    """A parser whose positional arguments may stand before, between and after the options."""

    _is_parsing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments of a command, and check those that must fit together."""
        from .arguments import transport_fault  # here, because this module's importers need no command

        if self._is_parsing:  # up to Python 3.11, the intermixed parser calls this method again
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            given, others = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False
        if (fault := transport_fault(given)) is not None:
            self.error(fault)
        return given, others


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: Words of the command line; None for the words of this process.

    Returns:
        The exit status: 0, 1 after a failure, which was reported on stderr, or 130 after Ctrl-C.

    Raises:
        SystemExit: The arguments are wrong (status 2), or ask for help (0).
    """
    # A process started by `>&-` or pythonw has no standard streams. Its output is discarded.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open for the whole process
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a bot may send characters that the terminal cannot show
            stream.reconfigure(errors="replace")
    handler = logging.StreamHandler()
    handler.setFormatter(CleanFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        # Ctrl-C waits for the imports. An interrupted import may crash the process (orjson's does), or swallow Ctrl-C.
        parser = shielded(_parser, on_interrupt=lambda: None)
        given = parser.parse_args(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    if given.command is None:
        return run_program(parser.print_help)
    return run_program(lambda: given.run(given), f"rtvi-sync {given.command}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rtvi-sync", description="Talk to RTVI voice bots.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for name in COMMANDS:
        module = importlib.import_module(f".{name.replace('-', '_')}", __name__)
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


def run_program(main: Callable[[], int | None], name: str = "") -> int:
    """Run a program and return its exit status: ``sys.exit(run_program(main))``.

    An `RTVIError`, an `OSError` or a missing package is reported in one line on stderr, and a `ConnectError` of several
    transports in one line for each; the error's notes follow. Any other exception is a bug in the program, and keeps
    its traceback.

    Args:
        main: The program. It returns its exit status; None means 0.
        name: Prefix of the line.

    Returns:
        The exit status of `main()`, 1 after an error, or 130 after Ctrl-C.
    """
    function_taking().check(main=main)
    STRING.check(name=name)
    try:
        status = main()
        print(end="", flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. The buffered rest must not fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return FAILED
    except ModuleNotFoundError as error:
        return _failed(name, f"{error}. Install the package that has it, with pip")
    except ConnectError as error:
        ways = str(error).split("\n")  # one line for each attempted transport, then the lines for programs
        return _failed(name, *(ways[:-1] if error.attempts and len(ways) > 1 else ways), *_notes(error))
    except (RTVIError, OSError) as error:
        return _failed(name, str(error) or type(error).__name__, *_notes(error))  # a future's TimeoutError has no text
    return status or 0


def _notes(error: Exception) -> list[str]:
    return getattr(error, "__notes__", [])


def _failed(name: str, *reason: str) -> int:
    """Print why a program failed: on a terminal in red, and wrapped between words."""
    from .screen import screen_for  # here, because most programs don't fail

    first, *others = (" ".join(line.split()) for line in reason)
    with contextlib.suppress(OSError):
        if sys.stderr is not None:  # a process may have none
            screen = screen_for(sys.stderr)
            for line in (f"{name}: {first}" if name else first, *(f"  {other}" for other in others)):
                screen.print_line(line, "error")
    return FAILED
