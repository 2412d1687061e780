"""The two kinds of tests: of behaviour, and of a part with an interface of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.kinds import counts, faults, modules_of_tests, private_names


def test_no_test_knows_an_inside() -> None:
    """No test uses a private name of the package, and a test of behaviour imports public names and `tests/support`."""
    assert faults() == []


def test_the_names_of_the_package_are_found() -> None:
    """The private names are from the package's classes and modules, and the modules from all tests."""
    assert {"_life", "_bus"} & private_names()
    assert "tests.source.test_kinds" in modules_of_tests()


PACKAGE = """
_BOUNDARY = 1

class Part:
    def __init__(self):
        self._inner = 1

    def _toil(self):
        pass
"""
CLEAN = """
import os
from rtvi_sync import Part
from tests.support.probes import inner_of

class Fake(Part):
    def __init__(self):
        self._inner = 2

def test_it(monkeypatch):
    '''part._inner is named in a docstring only.'''
    part, script = Part(), "import os; os._exit(0)"
    part.number = len("_inner")
    monkeypatch.setattr(os, "getpid", lambda: inner_of(part))
"""
PRIVATE = "the private name _inner"
OFFENCES = {
    "part._inner": PRIVATE,
    "Fake()._inner": PRIVATE,
    "part._inner = 3": PRIVATE,
    "getattr(part, '_inner')": PRIVATE,
    "setattr(part, '_inner', 3)": PRIVATE,
    "vars(part)['_inner']": PRIVATE,
    "part.__dict__['_inner']": PRIVATE,
    "monkeypatch.setattr(part, '_inner', 3)": PRIVATE,
    "run('import rtvi_sync; rtvi_sync.Part()._inner')": PRIVATE,
    "run('while not part._inner:\\n  call = ')": PRIVATE,
    "run(f'{part}._inner')": PRIVATE,
    "from rtvi_sync import _BOUNDARY": "the private name _BOUNDARY",
    "run('from rtvi_sync import Part, _BOUNDARY')": "the private name _BOUNDARY",
    "mock.patch('rtvi_sync.Part._toil')": "the private name _toil",
    "mock.patch('rtvi_sync.Part')": "patches the package",
    "mock.patch.object(Part, 'number')": "patches the package",
    "monkeypatch.setattr('rtvi_sync.inner.LIMIT', 3)": "patches the package",
    "monkeypatch.setattr(importlib.import_module('rtvi_sync.inner'), 'LIMIT', 3)": "patches the package",
    "Part.number = 3": "patches the package",
    "import rtvi_sync.inner": "imports rtvi_sync.inner",
    "from rtvi_sync import inner": "imports rtvi_sync.inner",
    "importlib.import_module('rtvi_sync.inner')": "imports rtvi_sync.inner",
    "run('import os; from rtvi_sync.inner import LIMIT')": "imports rtvi_sync.inner",
}


def tree(root: Path, test: str) -> Path:
    """Make a package, a probe, and one test module below a folder; return the folder."""
    files = {
        "rtvi_sync/__init__.py": PACKAGE,
        "rtvi_sync/inner.py": "LIMIT = 1",
        "tests/support/probes.py": "def inner_of(part):\n    return part._inner\n",
        "tests/test_it.py": test,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_a_clean_tree_has_no_fault(tmp_path: Path) -> None:
    """Own attributes, docstrings and patches of other modules are no faults; the names in probes are counted apart."""
    root = tree(tmp_path, CLEAN)
    assert faults(root) == []
    behaviour, _, support, _ = counts(root)
    assert "1 functions, 0 tied to insides, 0 private uses, 0 patches" in behaviour
    assert support == "support: 1 modules, 1 private uses"


@pytest.mark.parametrize("offence", OFFENCES)
def test_an_offence_is_found(offence: str, tmp_path: Path) -> None:
    """Each way to reach an inside is a fault at its line, and ties its test to insides if it is a use or a patch."""
    root = tree(tmp_path, f"{CLEAN}    {offence}\n")
    found = faults(root)
    assert any(OFFENCES[offence] in fault for fault in found), found
    assert "imports" in OFFENCES[offence] or "1 tied to insides" in counts(root)[0]


def test_an_inside_part_may_be_patched_by_its_own_test(tmp_path: Path) -> None:
    """A module that is marked may import and patch a part, but use none of its private names."""
    mark = "import pytest\nfrom rtvi_sync import inner\npytestmark = pytest.mark.inside\n"
    assert faults(tree(tmp_path, f"{mark}{CLEAN}    inner.LIMIT = 3\n")) == []
    assert len(faults(tree(tmp_path, f"{mark}{CLEAN}    part._inner\n"))) == 1
