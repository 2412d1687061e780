"""The published packages have the names that are kept here."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.required import missing
from tests.support.slowness import GUARD

from .names_of import lines_of

NAMES = Path(__file__).with_name("names")
PACKAGES = {
    "client-js-0.3.2": "@pipecat-ai/client-js@0.3.2",
    "client-js-1.13.0": "@pipecat-ai/client-js@1.13.0",
    "typed-emitter-2.1.0": "typed-emitter@2.1.0",
}


def fetched(package: str, folder: Path) -> Path:
    """Return the archive of a package, as npm fetches it."""
    npm = shutil.which("npm")
    if npm is None:
        missing("npm is not installed")
    command = [npm, "pack", package, "--silent", "--pack-destination", str(folder)]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GUARD, check=False)
    if run.returncode:
        missing(f"npm cannot fetch {package}: {run.stderr.strip()[-500:]}")
    return next(folder.glob("*.tgz"))


@pytest.mark.matrix
@pytest.mark.parametrize("name", PACKAGES)
def test_names_are_those_of_the_package(name: str, tmp_path: Path) -> None:
    """`names/` has exactly the names that a published package declares."""
    with tarfile.open(fetched(PACKAGES[name], tmp_path)) as archive:
        path = next(path for path in archive.getnames() if path.endswith("index.d.ts"))
        member = archive.extractfile(path)
        assert member is not None
        declarations = member.read().decode()

    assert (NAMES / f"{name}.txt").read_text("utf-8").splitlines() == lines_of(declarations)


def test_every_list_of_names_has_a_package() -> None:
    """All lists but the one of the documentation's names can be checked."""
    assert {path.stem for path in NAMES.glob("*.txt")} == {*PACKAGES, "documentation-0.3"}
