"""`python -m benchmarks` from its arguments to the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measure, parts
from benchmarks.results import Results
from tests.support.slowness import GUARD

pytestmark = pytest.mark.matrix


def run(*arguments: str | Path) -> str:
    """Run the program; what it prints."""
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=measure.ROOT, timeout=GUARD).stdout


def test_it_measures_and_writes_the_page(tmp_path: Path) -> None:
    """The figures of one scenario with two peers are kept and on the page, and a picture lies beside it."""
    said = run("--quick", "--only", "request", "--peer", "ref", "--peer", "raw", "--output", tmp_path)

    kept = json.loads((tmp_path / "performance" / "results.json").read_text(encoding="utf-8"))
    assert kept["rounds"].keys() == {"request"}
    assert kept["rounds"]["request"].keys() == {"ref", "raw"}
    assert kept["measured"] == {"request": "1 round, 0.1 of each measurement"}
    page = (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert "| x ref | raw |\n" in page
    assert "\n| median | ref | raw |\n" in page
    assert (tmp_path / "performance" / "latency.svg").exists()
    assert [line.split(":")[0] for line in said.splitlines()[:2]] == ["request 1/1 ref", "request 1/1 raw"]


def test_what_was_measured_before_stays(tmp_path: Path) -> None:
    """Other scenarios are kept. Of the same one nothing is: what was not measured together is not to be compared."""
    before = Results(rounds={"request": {"ours": [{"p50_us": 7.0}], "raw": [{"p50_us": 1.0}]}, "events": {}})
    before.measured = {"request": "7 rounds", "events": "3 rounds"}
    before.save(tmp_path / "performance" / "results.json")

    run("--quick", "--only", "request", "--peer", "raw", "--output", tmp_path)

    after = Results.load(tmp_path / "performance" / "results.json")
    assert after.rounds.keys() == {"request", "events"}
    assert after.rounds["request"].keys() == {"raw"}
    assert after.rounds["request"]["raw"] != [{"p50_us": 1.0}]
    assert after.measured == {"request": "1 round, 0.1 of each measurement", "events": "3 rounds"}


def test_the_page_is_not_made_of_single_peers() -> None:
    """A run with a single peer makes no page, because older figures would be compared with its own."""
    command = [sys.executable, "-m", "benchmarks", "--only", "request", "--peer", "raw"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT, timeout=GUARD)

    assert done.returncode == 2
    assert "omit --peer" in done.stderr


def test_the_page_is_made_without_measuring(tmp_path: Path) -> None:
    """`--text` makes the page of what is kept, and changes none of it."""
    file = tmp_path / "performance" / "results.json"
    Results(parts={"codec": 1e-6}).save(file)
    kept = file.read_bytes()

    run("--text", "--output", tmp_path)

    assert "| codec | 1,000 |" in (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert file.read_bytes() == kept


@pytest.mark.parametrize("name", parts.parts())
def test_a_part_runs(name: str) -> None:
    """What stands for a part of the package in the table runs, more than once."""
    part = parts.parts()[name]
    part()
    part()
