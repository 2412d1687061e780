"""The warm Python: a script in a fork of it is a program like any other."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .slowness import GUARD
from .warm import WarmProcess


@pytest.mark.parametrize(
    ("script", "status", "out", "last_error"),
    [
        ("import sys; print(__name__, sys.argv[1:])", 0, "__main__ ['a', 'b']\n", None),
        ("import sys; sys.exit(3)", 3, "", None),
        ("import sys; sys.exit('no')", 1, "", "no"),
        ("1 / 0", 1, "", "ZeroDivisionError: division by zero"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, "", None),
        ("raise KeyboardInterrupt", -signal.SIGINT, "", "KeyboardInterrupt"),
        ("import atexit; atexit.register(print, 'bye'); print('hello')", 0, "hello\nbye\n", None),
        ("import sys; print(sys.stdin.read())", 0, "question\n", None),
        ("import rtvi_sync; rtvi_sync.mark = 1", 0, "", None),
        ("import rtvi_sync; print(hasattr(rtvi_sync, 'mark'))", 0, "False\n", None),
    ],
)
def test_a_script_ends_as_a_program_does(script: str, status: int, out: str, last_error: str | None) -> None:
    """A script has its arguments and streams, and its status, output and last line of error are as usual."""
    with WarmProcess(script, "a", "b") as process:
        printed, errors = process.communicate("question", timeout=GUARD)
    assert (process.returncode, printed) == (status, out)
    assert errors.splitlines()[-1:] == ([last_error] if last_error else [])


def test_a_script_has_its_own_folder_and_environment(tmp_path: Path) -> None:
    """A script runs in the folder and with the environment that it is given."""
    with WarmProcess("import os; print(os.getcwd(), dict(os.environ))", folder=tmp_path, env={"ONE": "1"}) as process:
        printed, _ = process.communicate(timeout=GUARD)
    assert printed == f"{tmp_path} {{'ONE': '1'}}\n"


def test_a_script_gets_signals() -> None:
    """Ctrl-C raises `KeyboardInterrupt` in a script that waits; one that hangs can be killed."""
    wait = "import time; print('here', flush=True); time.sleep(1000)"
    with WarmProcess(wait) as process:
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().endswith("KeyboardInterrupt\n")
        assert process.wait(GUARD) == -signal.SIGINT
    with WarmProcess(wait) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.01)
        process.kill()
        assert process.wait(GUARD) == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)
