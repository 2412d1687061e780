"""The samples, each run as a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .slowness import GUARD

ROOT = Path(__file__).parents[2]


def run(folder: Path, name: str, *arguments: str) -> list[str]:
    """Return the lines that a sample prints; it has to succeed without a word on stderr."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"samples.{name}", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def failure(folder: Path, *command: str) -> str:
    """Return the one line of an error that a sample ends with; the status is 1."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    return done.stderr
