"""Each module of the package is imported first by a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_python
from tests.support.slowness import GUARD
from tools.kinds import package_modules

ROOT = Path(__file__).parents[1]


@pytest.mark.matrix
def test_each_module_imports_alone() -> None:
    """Every module can be the first that a process imports: there is no cycle that hides behind another order."""
    names = [name for name in package_modules() if not name.endswith("__main__")]
    script = """
import os, sys
sys.path.insert(0, sys.argv[1])
import attrs, blinker, httpx, pytest, tenacity, websocket, websockets.sync.server  # only once
failed = []
for name in sys.argv[2:]:
    if name in sys.modules:
        continue
    pid = os.fork()
    if pid == 0:
        try:
            __import__(name)
            os._exit(0)
        except BaseException as error:
            print(name, type(error).__name__, error, flush=True)
            os._exit(1)
    if os.waitpid(pid, 0)[1]:
        failed.append(name)
sys.exit(bool(failed))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(ROOT), *names],
        capture_output=True,
        text=True,
        timeout=4 * GUARD,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_it_is_imported_where_the_standard_library_has_no_files() -> None:
    """A runtime that is frozen into one program has no `os.__file__`."""
    script = "import os; del os.__file__; import rtvi_sync; print(rtvi_sync.RTVIError('x'))"
    assert run_python(script) == (0, "x\n", "")
