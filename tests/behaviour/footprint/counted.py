"""The output of a fresh interpreter, and the counts of callgrind and strace in `stretches.py`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.required import missing
from tests.support.slowness import GUARD

_ROOT: Final = Path(__file__).parents[3]
_MARK: Final = "getppid"


def program(name: str) -> str:
    """Return the path of a program that `run.py test --real` installs; without it, skip the test, or fail it."""
    found = shutil.which(name)
    if found is None:
        missing(f"{name} is not installed: run `python3 run.py test --real` as root")
    return found


def _run(command: Sequence[str], url: str, times: int) -> list[tuple[str, int]]:
    """Name and number of each stretch."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)}
    command = [*command, sys.executable, "-m", "tests.behaviour.footprint.stretches", url, str(times)]
    ran = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=4 * GUARD)
    assert ran.returncode == 0, ran.stderr
    return [(name, number) for name, number in json.loads(ran.stdout)]


def instructions(url: str, folder: Path) -> dict[str, float]:
    """Count the instructions of the process that each thing takes."""
    out = folder / "counted"
    # One file for each call of the mark, numbered from 1, with the counts since the mark before.
    options = ["--tool=callgrind", f"--dump-before={_MARK}", f"--callgrind-out-file={out}"]
    stretches = _run([program("valgrind"), *options], url, 1)
    found = {}
    for index, (name, number) in enumerate(stretches):
        text = Path(f"{out}.{2 * index + 2}").read_text(encoding="utf-8")
        total = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
        assert total is not None, text[:500]
        found[name] = int(total[1]) / number
    return found


def system_calls(url: str, folder: Path) -> dict[str, dict[str, float]]:
    """Count the system calls of all threads that each thing takes, by name."""
    out = folder / "counted"
    stretches = _run([program("strace"), "-f", "-qq", "-o", str(out)], url, 5)
    between: list[Counter[str]] = [Counter()]
    for name in re.findall(r"^\d+ +(\w+)\(", out.read_text(encoding="utf-8", errors="replace"), re.MULTILINE):
        if name == _MARK:
            between.append(Counter())
        else:
            between[-1][name] += 1
    return {
        name: {call: count / number for call, count in between[2 * index + 1].items()}
        for index, (name, number) in enumerate(stretches)
    }


def run(code: str, **variables: str) -> str:
    """Return the output of a fresh interpreter."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=GUARD).stdout
