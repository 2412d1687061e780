"""The contract finds the mistakes that there are to make."""

from __future__ import annotations

import re
from pathlib import Path

from tests.behaviour.contract.broken import MISTAKES
from tests.support.processes import run_pytest

ROOT = Path(__file__).parents[2]


def test_as_the_documentation_shows_it(tmp_path: Path) -> None:
    """The test file of docs/guides/transport.md passes as it stands."""
    page = ROOT.joinpath("docs/guides/transport.md").read_text("utf-8")
    file = tmp_path / "test_as_shown.py"
    file.write_text(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[-1], "utf-8")
    words = ("-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir", str(tmp_path), str(file))
    status, out, err = run_pytest(*words, folder=tmp_path)
    assert status == 0, out[-3000:] + err[-3000:]
    assert re.search(r"3\d passed, 2 skipped", out)


def test_each_mistake_is_found() -> None:
    """Each transport of `broken.py` fails the test that looks for its mistake."""
    tests = [f"tests/behaviour/contract/broken.py::Test{kind.__name__}::{test}" for kind, test in MISTAKES]
    words = ("-q", "-p", "no:cacheprovider", "-W", "ignore", "-rA", "--tb=line", *tests)
    _, out, err = run_pytest(*words, folder=ROOT)
    told = re.findall(r"^(PASSED|FAILED|ERROR) (\S+?::\S+?::test_\w+(?:\[[^\]]*\])?)", out, re.MULTILINE)
    found = {test for result, test in told if result != "PASSED"}
    assert set(tests) == found, out[-3000:] + err[-3000:]
