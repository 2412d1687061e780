"""Tests find their module: each module of the package has a test file of its name in the mirrored folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "rtvi_sync"

_PAYLOADS: Final = "classes of data without code: tests/protocol/test_decoding.py decodes into each of them"

#: Modules without a test file of their name, and why.
WITHOUT: Final[dict[str, str]] = {
    "_version": "one constant: tests/test_exports.py compares it",
    "media/devices/backend": "protocols, and functions that import a backend: the tests of both backends use it",
    "media/port": "a protocol: tests/transports/test_base.py checks what it shows",
    "protocol/application_payloads": _PAYLOADS,
    "protocol/service_payloads": _PAYLOADS,
    "protocol/session_payloads": _PAYLOADS,
    "protocol/turn_payloads": _PAYLOADS,
    "conversation/record": "classes of data without code: tests/conversation/test_turns.py makes each of them",
    "testing/contract_rig": "the tools of transport_contract: tests/behaviour/contract uses each of them",
}

MODULES: Final = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix()
    for path in PACKAGE.rglob("*.py")
    if not path.name.startswith("__")  # a package's own module re-exports, `__main__` calls the command line
)


def file_of(module: str) -> Path:
    """Return where the tests of a module are: the tests of `media/pcm` are in `tests/media/test_pcm.py`."""
    folder, _, name = module.rpartition("/")
    return ROOT / "tests" / folder / f"test_{name}.py"


def test_every_module_has_its_test_file() -> None:
    """A module has a test file or a folder of test files of its name, or a reason in `WITHOUT` why it has none."""
    folders = ROOT / "tests"
    without = [module for module in MODULES if not (file_of(module).is_file() or (folders / module).is_dir())]
    assert without == sorted(WITHOUT)


def test_few_modules_are_without() -> None:
    """At least 95 % of the modules have their test file."""
    assert len(WITHOUT) <= 0.05 * len(MODULES)


def test_the_private_life_of_a_client_is_named_once() -> None:
    """Tests reach it by `tests/support/clients.py`, so that a renamed attribute is changed in one place."""
    name = "client._" + "life"
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if name in path.read_text("utf-8")
    ]
    assert found == ["tests/support/clients.py"]


def test_no_test_file_is_imported_by_another() -> None:
    """Code shared by several files is in `tests/support`, a `conftest.py`, or a module of the folder named for it."""
    pattern = re.compile(r"^(?:from|import) (?:\S+\.|\.)?test_\w+", re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix(): pattern.findall(path.read_text("utf-8"))
        for path in sorted((ROOT / "tests").rglob("*.py"))
    }
    # A program of this file, run in another process, imports a function of the file itself.
    assert {path: lines for path, lines in found.items() if lines} == {
        "tests/transports/webrtc/test_hangs.py": ["from tests.transports.webrtc.test_hangs"],
    }
