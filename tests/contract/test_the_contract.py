"""The contract finds the mistakes that there are to make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from .broken import MISTAKES

ROOT = Path(__file__).parents[2]


def test_each_mistake_is_found() -> None:
    """Each transport of `broken.py` fails the test that looks for its mistake."""
    tests = [f"tests/contract/broken.py::Test{kind.__name__}::{test}" for kind, test in MISTAKES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-rA", "--tb=line", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    told = re.findall(r"^(PASSED|FAILED|ERROR) (\S+?::\S+?::test_\w+(?:\[[^\]]*\])?)", done.stdout, re.MULTILINE)
    found = {test for result, test in told if result != "PASSED"}
    assert set(tests) == found, done.stdout[-3000:] + done.stderr[-3000:]
