"""Processes that run a script with this Python and its packages, or with another one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from tests.support.slowness import GUARD
from tests.support.warm import WARM_PYTEST, WarmProcess

ROOT = Path(__file__).parents[2]
_PYTEST = """
import sys, pytest
sys.path.remove("")  # the program `pytest` does not look there
sys.exit(pytest.main(sys.argv[1:]))
"""


def free_port() -> int:
    """Return a port of 127.0.0.1 at which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def inherited(number: int, action: signal.Handlers) -> Iterator[None]:
    """Have programs that are started in the block inherit this for a signal. nohup may have started the tests."""
    before = signal.signal(number, action)
    try:
        yield
    finally:
        signal.signal(number, before)


@overload
def python(script: str, *arguments: str, executable: str, folder: Path = ROOT) -> subprocess.Popen[str]: ...
@overload
def python(script: str, *arguments: str, executable: None = None, folder: Path = ROOT) -> WarmProcess: ...
def python(
    script: str, *arguments: str, executable: str | None = None, folder: Path = ROOT
) -> subprocess.Popen[str] | WarmProcess:
    """Start a Python process that runs `script`; use it as a context manager and bound every wait.

    Args:
        script: indented as one likes.
        arguments: for the script.
        executable: a Python of any version, which uses the packages of this one. None: a fork of a warm Python, which
            has imported the package already.
        folder: where it runs.
    """
    if executable is None:
        return WarmProcess(textwrap.dedent(script), *arguments, folder=folder)
    packages = os.pathsep.join([str(ROOT), *(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))])
    return subprocess.Popen(
        [executable, "-W", "error", "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": packages, "PYTHONUNBUFFERED": "1"},
    )


def run_python(
    script: str, *arguments: str, timeout: float = GUARD, executable: str | None = None, folder: Path = ROOT
) -> tuple[int, str, str]:
    """Run `script` in a process of its own, as `python()` does. Return exit code, stdout and stderr."""
    process: subprocess.Popen[str] | WarmProcess = (
        python(script, *arguments, folder=folder)
        if executable is None
        else python(script, *arguments, executable=executable, folder=folder)
    )
    with process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"the process hangs\n{out}\n{err}") from None
    assert process.returncode is not None
    return process.returncode, out, err


def run_pytest(*arguments: str, folder: Path, timeout: float = 4 * GUARD) -> tuple[int, str, str]:
    """Run pytest as `run_python()` runs a script, from a folder that it does not import from by itself."""
    return run_python(_PYTEST, *arguments, *WARM_PYTEST, timeout=timeout, folder=folder)


def rest_of(process: subprocess.Popen[str] | WarmProcess) -> tuple[str, str]:
    """Return the remaining output of a process until its end, on its standard output and error.

    Not `communicate()`: that reads the pipe itself and misses the bytes that `readline()` has read beyond the line.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    rest = process.stdout.read(), process.stderr.read()
    process.wait(GUARD)
    return rest
