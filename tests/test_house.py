"""`python -m tools.house` prints the size of the package's structure."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.slowness import GUARD
from tools.house import AIMS
from tools.machine import ROOT

pytestmark = pytest.mark.matrix


def test_every_row_has_a_number() -> None:
    """The tool runs, finds the fields of its table in the source, and has a number for each count and each walk."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.house"], cwd=ROOT, capture_output=True, text=True, timeout=6 * GUARD
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()[2:]]
    walks = [row for row in rows if row[2]]

    assert (done.returncode, done.stderr) == (0, "")
    assert len(walks) == 7
    assert [row for row in rows if not row[1][:1].isdigit()] == []
    assert [row for row in walks if not all(cell.isdigit() and int(cell) for cell in row[2:5])] == []
    assert AIMS.keys() <= {row[0] for row in rows}
