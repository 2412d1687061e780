"""Tests find their module: each module of the package has a test file of its name in the mirrored folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "rtvi_sync"

#: Modules without a test file of their name, and why.
WITHOUT: Final[dict[str, str]] = {}

MODULES: Final = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__")  # packages' own modules re-export, `__main__` calls the command line
)


def test_file_of(module: str) -> Path:
    """Return where the tests of a module are: `media/pcm` has `tests/media/test_pcm.py`."""
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


test_file_of.__test__ = False  # type: ignore[attr-defined]


def test_every_module_has_its_test_file() -> None:
    """A module has a test file of its name, or a reason here why it has none."""
    missing = [module for module in MODULES if not test_file_of(module).is_file()]
    assert missing == sorted(WITHOUT)


def test_few_modules_are_without() -> None:
    """At least 95 % of the modules have their test file."""
    assert len(WITHOUT) <= 0.05 * len(MODULES)
