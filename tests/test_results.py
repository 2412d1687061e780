"""The closing lines of `run.py test --matrix`: the result of each version, and the untested parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import run
from tests.support.slowness import GUARD
from tools.machine import SetupError
from tools.results import VARIABLE, Result, summary

ROOT = Path(__file__).parents[1]

Make = Callable[..., Result]


@pytest.fixture
def result(tmp_path: Path) -> Make:
    """Return a function that makes a result from an exit status and optional counts."""

    def make(name: str, status: int, *counts: object) -> Result:
        file = tmp_path / name
        if counts:
            file.write_text(json.dumps(dict(zip(("passed", "failed", "skipped"), counts, strict=True))))
        return Result(name, status, file)

    return make


def test_each_version_has_a_line_and_the_sum_comes_last(result: Make) -> None:
    """Skips are listed with their reasons, and unavailable parts by name."""
    results = [result("Python 3.10", 0, 7, 0, {"no camera": 2}), result("Python 3.13", 1, 5, 3, {})]

    assert summary(results, ["Python 3.14: was not found"]) == [
        "Python 3.10: 7 passed, 0 failed, 2 skipped",
        "  2 skipped: no camera",
        "Python 3.13: 5 passed, 3 failed, 0 skipped",
        "not tested: Python 3.14: was not found",
        "12 passed, 3 failed",
    ]
    assert [one.good for one in results] == [True, False]


def test_a_run_that_fails_without_a_failed_test_counts_as_one(result: Make) -> None:
    """A run without counts has failed, whatever its status."""
    runs = [result("collected nothing", 5, 0, 0, {}), result("was killed", 137), result("told nothing", 0)]

    assert [(one.passed, one.failed, one.good) for one in runs] == [(0, 1, False)] * 3


def test_a_silent_skip_fails_the_run(result: Make) -> None:
    """Each skipped test needs a reason."""
    silent = result("silent", 0, 7, 0, {"": 1})

    assert not silent.good
    assert summary([silent], [])[1] == "  1 skipped: WITHOUT A REASON"


def test_a_run_that_is_stopped_fails_and_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Later runs still take place."""

    def stop(*_: object, **__: str) -> int:
        raise SetupError("stopped after 9 s: pytest")

    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.setattr(run, "run_command", stop)
    assert run.run_tests("Python 3.10", Path(sys.executable), []).failed == 1
    assert capsys.readouterr().out.splitlines() == [
        "Testing with Python 3.10",
        "Python 3.10: stopped after 9 s: pytest",
    ]


@pytest.mark.parametrize("processes", [(), pytest.param(("-n", "2"), marks=pytest.mark.matrix)], ids=["one", "two"])
def test_pytest_writes_its_counts(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """The counts include failures, errors and skips, with one process and with several."""
    tests = """
import pytest
def test_good(): pass
def test_bad(): assert False
def test_skipped(): pytest.skip("no camera")
@pytest.fixture
def broken(): raise ValueError
def test_broken(broken): pass
"""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_terminal_summary")
    (tmp_path / "test_four.py").write_text(tests)
    counts = tmp_path / "counts"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: str(counts)}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=GUARD)

    assert done.returncode == 1, done.stderr
    assert json.loads(counts.read_text()) == {"passed": 1, "failed": 2, "skipped": {"no camera": 1}}
