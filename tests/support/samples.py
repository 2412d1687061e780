"""The samples, each run as a program of its own."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from .processes import run_python
from .slowness import GUARD

# As `python -m` runs it, which finds `samples` in the folder of the project.
_RUN = """
    import runpy, sys
    sys.path[0] = sys.argv.pop(1)
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
ROOT = Path(__file__).parents[2]


def run(folder: Path, name: str, *arguments: str, timeout: float = GUARD) -> list[str]:
    """Return the lines that a sample prints within `timeout` seconds; it must succeed without a word on stderr."""
    status, out, err = run_python(_RUN, str(ROOT), f"samples.{name}", *arguments, folder=folder, timeout=timeout)
    assert (status, err) == (0, ""), out
    return out.splitlines()


def failure(folder: Path, name: str, *arguments: str, first: str = "") -> str:
    """Return the one line of an error that a sample ends with, without the word that explains it; the status is 1.

    Args:
        folder: where it runs.
        name: of the sample.
        arguments: of its own.
        first: a line of Python that runs before.
    """
    script = f"{first}\n{textwrap.dedent(_RUN)}"
    status, _, err = run_python(script, str(ROOT), f"samples.{name}", *arguments, folder=folder)
    line, _, note = err.partition("\n")
    assert status == 1, err
    assert re.fullmatch(r"(  See: rtvi-sync explain [a-z -]+\n)?", note), err
    return f"{line}\n"
