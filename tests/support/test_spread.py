"""Several processes that share the tests: the distribution, and the counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

from .spread import APART, LONGEST, TOGETHER, begin_of, group_of

ROOT = Path(__file__).resolve().parents[2]

COUNTING = """
import os
from collections import Counter

import pytest

def tell(counts):
    return [f"{name} was seen {number} times" for name, number in sorted(counts.items(), key=str)]

@pytest.mark.parametrize("number", range(3))
def test_it(number, show_table):
    show_table(tell, Counter({"one": 1, ("a", "pair"): number, os.environ["PYTEST_XDIST_WORKER"]: 1}))
"""


def test_what_is_named_is_there() -> None:
    """Each folder and file that is listed to stay together, to be shared out or to start early exists."""
    listed = (*(path for group in TOGETHER for path in group), *APART, *LONGEST)
    assert [path for path in listed if not (ROOT / path.partition("::")[0]).exists()] == []


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/client/test_it.py::TestFork::test_it[a/b::c]", "tests/client/test_it.py"),
        ("tests/audio/test_it.py::test_it", "tests/audio/"),
        ("tests/audio_like/test_it.py::test_it", "tests/audio_like/test_it.py"),
        (f"{TOGETHER[0][1]}::test_it", TOGETHER[0][0]),
        (f"{APART[0]}::test_it[a/b::c]", f"{APART[0]}::test_it[a/b::c]"),
    ],
)
def test_a_file_is_a_group_unless_it_is_listed(nodeid: str, group: str) -> None:
    """Whatever the test is called, its file or folder decides."""
    assert group_of(nodeid) == group


def test_the_longest_begin_first() -> None:
    """The longest tests run first, in the order of the list, those of any process last; all others stay as they are."""
    others = ["tests/a.py::test_it", "tests/zz/test_b.py::test_it"]
    named = [f"{path}::test_it" for path in LONGEST]
    apart = [f"{path}::test_it" for path in APART]
    assert sorted([*apart, *others, *reversed(named)], key=begin_of) == [*named, *others, *apart]


@pytest.mark.matrix
def test_what_all_processes_counted_is_one_table(tmp_path: Path) -> None:
    """The files of a small suite run in processes of their own; the summary shows the sum, once."""
    for name in ("test_a.py", "test_b.py"):
        source = COUNTING if name == "test_a.py" else COUNTING.replace("def tell", "from test_a import tell\ndef _tell")
        tmp_path.joinpath(name).write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n", "2", "-c", os.devnull, "--rootdir", ".", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    table = [line for line in done.stdout.splitlines() if "was seen" in line]
    assert done.returncode == 0, done.stdout
    assert sorted(table) == [
        "('a', 'pair') was seen 6 times",
        "gw0 was seen 3 times",
        "gw1 was seen 3 times",
        "one was seen 6 times",
    ]
    assert "6 passed" in done.stdout.splitlines()[-1]
