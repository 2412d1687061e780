"""The command line: exit statuses, and one line for an error."""

from __future__ import annotations

import logging
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rtvi_sync import ConnectError, ConnectionTimeoutError, MissingExtraError, RTVIError, __version__, cli
from tests.support.installed import install_command
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

_NOTE = "\n  See: rtvi-sync explain missing-extra"


def command(run: Callable[[Namespace], int]) -> Any:
    """Return an object with the members of a command's module."""

    def add_arguments(parser: ArgumentParser) -> None:
        parser.add_argument("--loud", action="store_true")

    return SimpleNamespace(__doc__="Do it.\n\nMore.", add_arguments=add_arguments, run=run)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Namespace], int]], None]:
    """Return a function that makes `do` the only command."""
    monkeypatch.setattr(cli, "COMMANDS", ("do",))
    return lambda run: monkeypatch.setitem(sys.modules, "rtvi_sync.cli.do", command(run))


def test_a_command_gets_its_arguments_and_its_status_is_returned(install: Callable[..., None]) -> None:
    """The return value of `run()` is the exit status."""
    install(lambda arguments: 7 if arguments.loud else 0)
    assert cli.main(["do"]) == 0
    assert cli.main(["do", "--loud"]) == 7


@pytest.mark.parametrize("error", [RTVIError("no \x1b[1mbot\nthere"), OSError(28, "No space left")])
def test_a_failure_is_one_clean_line(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    """Status 1, the reason on stderr, no traceback, no control character."""

    def fail(_: Namespace) -> int:
        raise error

    install(fail)
    assert cli.main(["do"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("rtvi-sync do: ")
    assert shown.err.count("\n") == 1
    assert "\x1b" not in shown.err


def test_ctrl_c_has_its_own_status(install: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 130 and no traceback."""

    def interrupted(_: Namespace) -> int:
        raise KeyboardInterrupt

    install(interrupted)
    assert cli.main(["do"]) == 130
    assert capsys.readouterr().err == ""


def test_ctrl_c_while_a_command_is_imported() -> None:
    """Ctrl-C while a command is imported has status 130 and no traceback, and interrupts no import."""
    program = (
        "import signal, sys\n"
        "class CtrlC:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'rtvi_sync.client':\n"
        "            try:\n"
        "                signal.raise_signal(signal.SIGINT)\n"
        "            except KeyboardInterrupt:\n"
        "                pass  # swallowed, as in a finalizer\n"
        "sys.meta_path.insert(0, CtrlC())\n"
        "sys.argv[1:] = ['talk', 'ws://127.0.0.1:1']\n"
        "import rtvi_sync.__main__\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_bug_in_the_command_is_not_hidden(install: Callable[..., None]) -> None:
    """An exception that is no RTVIError and no OSError keeps its traceback."""

    def wrong(_: Namespace) -> int:
        raise ZeroDivisionError

    install(wrong)
    with pytest.raises(ZeroDivisionError):
        cli.main(["do"])


@pytest.mark.parametrize("arguments", [["nosuch"], ["demo", "--url", "ftp://x"], ["demo", "--timeout", "soon"]])
def test_wrong_arguments_have_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The usage is shown."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage: rtvi-sync" in capsys.readouterr().err


def test_no_command_is_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    """The command alone prints the help."""
    assert cli.main([]) == 0
    assert "demo" in capsys.readouterr().out


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command has the first line of its docstring."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(["--help"])
    assert exit_.value.code == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConnectionTimeoutError("The bot was not ready", phase="http", elapsed=1.0), "The bot was not ready"),
        (TimeoutError(), "TimeoutError"),
        (OSError("first line\nand \x1b[2Jmore"), "first line and  [2Jmore"),
        (MissingExtraError("It", "x"), f'It needs the extra "x". Install it with: {install_command("x")}{_NOTE}'),
        (ModuleNotFoundError("No module named 'x'"), "No module named 'x'. Install the package that has it, with pip"),
    ],
)
def test_run_program_reports_errors_as_commands_do(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """run_program() prints an error as one line, after a name if there is one, and returns 1."""

    def fail() -> None:
        raise error

    assert [cli.run_program(fail), cli.run_program(fail, "sample")] == [1, 1]
    assert capsys.readouterr().err == f"{line}\nsample: {line}\n"


def test_run_program_has_a_line_for_each_transport(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of several transports is reported as it is written, in clean lines, and its note follows."""

    def fail() -> None:
        raise ConnectError("No bot was reached:\n  websocket: a \x1b[2J\n  eval: b")

    assert cli.run_program(fail, "sample") == 1
    ways = "sample: No bot was reached:\n  websocket: a  [2J\n  eval: b\n"
    assert capsys.readouterr().err == f"{ways}  See: rtvi-sync explain no-bot\n"


def test_run_program_has_its_own_status() -> None:
    """The return value of `main()` is the status; None means success."""
    assert [cli.run_program(lambda: None), cli.run_program(lambda: 3)] == [0, 3]


def test_log_records_that_quote_servers_are_clean() -> None:
    """Records lose their control characters, and keep their lines."""
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "it says %s\nmore", ("\x1b[2Jx",), None)
    assert cli.CleanFormatter("%(levelname)s %(message)s").format(record) == "WARNING it says  [2Jx\nmore"


def test_module_runs_as_a_program() -> None:
    """`python -m rtvi_sync` is the command line."""
    words = [sys.executable, "-m", "rtvi_sync", "--version"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=GUARD)
    assert (shown.returncode, shown.stdout, shown.stderr) == (0, f"rtvi-sync {__version__}\n", "")


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    """`rtvi-sync demo | head -1` shows no traceback."""
    program = (
        "import sys\n"
        "from argparse import Namespace\n"
        "from rtvi_sync.cli import demo, main\n"
        "demo.run = lambda _: sys.stdin.readline() and print('too late', flush=True)\n"
        "sys.exit(main(['demo']))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.close()
    child.stdout = None
    _, errors = child.communicate("now\n", timeout=GUARD)
    assert (child.returncode, errors) == (1, "")
