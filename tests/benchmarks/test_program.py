"""`python -m benchmarks` from its arguments to the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import measure, parts
from benchmarks.__main__ import quick_scenarios
from benchmarks.results import Results
from benchmarks.tables import QUICK
from tests.support.slowness import GUARD

pytestmark = pytest.mark.matrix

TINY = ("--rounds", "1", "--effort", "0.01")


def run(*arguments: str | Path) -> str:
    """Run the program and return its output."""
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=measure.ROOT, timeout=GUARD).stdout


def test_it_measures_and_writes_the_page(tmp_path: Path) -> None:
    """The figures of one scenario with two peers are kept, printed in the table, and on the page."""
    said = run("--only", "connect", "--peer", "ref", "--peer", "raw", *TINY, "--output", tmp_path).splitlines()

    kept = json.loads((tmp_path / "background" / "performance.json").read_text(encoding="utf-8"))
    assert kept["rounds"].keys() == {"connect"}
    assert kept["rounds"]["connect"].keys() == {"ref", "raw"}
    assert re.fullmatch(r"1 round, 0.01 of each measurement, \d{4}-\d\d-\d\d", kept["measured"]["connect"])
    page = (tmp_path / "background" / "performance.md").read_text(encoding="utf-8")
    assert "|  | ours | ref | raw | x ref | target |  |\n" in page
    assert [line.split(":")[0] for line in said[:2]] == ["connect 1/1 ref", "connect 1/1 raw"]
    assert [word for line in said if line.startswith("close p50") for word in line.split()[-5:]] == [
        "≤",
        "2",
        "x",
        "not",
        "measured",
    ]


def test_the_quick_run_prints_a_table_and_writes_nothing(tmp_path: Path) -> None:
    """The quick run measures the rows that matter; one line names the figures that it could not measure."""
    before = (measure.ROOT / "docs/background/performance.json").read_bytes()

    said = run("--quick", "--only", "connect", "--peer", "ours", "--peer", "picows", *TINY).splitlines()

    assert [line for line in said if line.startswith("construction and connect, ms ")]
    if measure.python_of("picows") is None:
        assert "not measured: picows, connect: there is no environment PICOWS" in said
    assert said[-1].startswith("measured in 0.")
    assert (measure.ROOT / "docs/background/performance.json").read_bytes() == before


def test_the_quick_run_has_the_scenarios_of_its_table() -> None:
    """Each row of the table in the terminal is measured, each scenario once."""
    assert set(quick_scenarios()) == {row.scenario for row in QUICK.rows}
    assert len(quick_scenarios()) == len(set(quick_scenarios()))


def test_what_was_measured_before_stays(tmp_path: Path) -> None:
    """Other scenarios are kept, but the same one is replaced: only rounds that ran together can be compared."""
    before = Results(rounds={"connect": {"ours": [{"close_ms": 7.0}], "raw": [{"close_ms": 1.0}]}, "events": {}})
    before.measured = {"connect": "7 rounds", "events": "3 rounds"}
    before.machines = {"connect": {"processor": "old"}, "events": {"processor": "old"}}
    before.save(tmp_path / "background" / "performance.json")

    run("--only", "connect", "--peer", "raw", *TINY, "--output", tmp_path)

    after = Results.load(tmp_path / "background" / "performance.json")
    assert after.rounds.keys() == {"connect", "events"}
    assert after.rounds["connect"].keys() == {"raw"}
    assert after.rounds["connect"]["raw"] != [{"close_ms": 1.0}]
    assert after.measured["connect"].startswith("1 round, 0.01 of each measurement, ")
    assert after.measured["events"] == "3 rounds"


def test_the_page_is_not_made_of_single_peers() -> None:
    """A run with a single peer makes no page, because older figures would be compared with its own."""
    command = [sys.executable, "-m", "benchmarks", "--only", "request", "--peer", "raw"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=measure.ROOT, timeout=GUARD)

    assert done.returncode == 2
    assert "omit --peer" in done.stderr


def test_the_page_is_made_without_measuring(tmp_path: Path) -> None:
    """`--text` makes the page from the kept results, and changes none of them."""
    file = tmp_path / "background" / "performance.json"
    Results(rounds={"events": {"ours": [{"per_second": 1234.0}], "ref": [{"per_second": 1000.0}]}}).save(file)
    kept = file.read_bytes()

    said = run("--text", "--output", tmp_path)

    assert re.search("^events a second, burst +1,234 +1,000 +1.23 ", said, re.MULTILINE)
    assert "| events a second, burst | 1,234 | 1,000 | 1.23 | ≥ 2.5 x | missed by 51% |" in (
        tmp_path / "background" / "performance.md"
    ).read_text(encoding="utf-8")
    assert file.read_bytes() == kept


@pytest.mark.parametrize("name", parts.parts())
def test_a_part_runs(name: str) -> None:
    """The code for a part of the package in the table runs, more than once."""
    part = parts.parts()[name]
    part()
    part()
