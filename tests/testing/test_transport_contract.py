"""The contract finds the mistakes that there are to make."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.behaviour.contract.broken import MISTAKES
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]


def test_as_the_documentation_shows_it(tmp_path: Path) -> None:
    """The test file of docs/guides/transport.md passes as it stands."""
    page = ROOT.joinpath("docs/guides/transport.md").read_text("utf-8")
    file = tmp_path / "test_as_shown.py"
    file.write_text(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[-1], "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", tmp_path, file],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"3\d passed, 2 skipped", done.stdout)


def test_each_mistake_is_found() -> None:
    """Each transport of `broken.py` fails the test that looks for its mistake."""
    tests = [f"tests/behaviour/contract/broken.py::Test{kind.__name__}::{test}" for kind, test in MISTAKES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-rA", "--tb=line", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    told = re.findall(r"^(PASSED|FAILED|ERROR) (\S+?::\S+?::test_\w+(?:\[[^\]]*\])?)", done.stdout, re.MULTILINE)
    found = {test for result, test in told if result != "PASSED"}
    assert set(tests) == found, done.stdout[-3000:] + done.stderr[-3000:]
