"""Every Python block of README and the docs runs as a reader would run it, and prints what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run_python
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*PAGES, *sorted({*ROOT.glob("*.md"), *(ROOT / "samples").glob("*/*.md")} - {README})]
# A block of Python, and the indented output that follows it, if one does.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n((?: {4}[^\n]*\n)+))?", re.DOTALL | re.MULTILINE)

# A block has to import what it uses, so it begins without the modules of the package that others have imported.
FIRST = f"""
import sys
sys.path[0] = {str(ROOT)!r}
for name in [name for name in sys.modules if name.partition(".")[0] == "rtvi_sync"]:
    del sys.modules[name]
del name, sys
"""


def blocks_of(page: Path) -> list[Any]:
    """Return block and output of each block of a page."""
    return [
        pytest.param(block, textwrap.dedent(output), id=f"{page.relative_to(ROOT)}:{number}")
        for number, (block, output) in enumerate(BLOCK.findall(page.read_text("utf-8")), 1)
    ]


@pytest.mark.parametrize(("block", "output"), [block for page in PAGES for block in blocks_of(page)])
def test_block_runs(block: str, output: str, tmp_path: Path) -> None:
    """A block of the documentation runs to its end in a process of its own, without a Python warning."""
    if "opentelemetry" in block or "rtvi_sync.otel" in block:
        pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")
    # What a block writes goes to a folder of the test's; what it reads lies where the reader finds it.
    shutil.copytree(ROOT / "rtvi_sync" / "cli", tmp_path / "rtvi_sync" / "cli", ignore=shutil.ignore_patterns("*.py"))

    status, out, err = run_python(FIRST + block, folder=tmp_path)

    assert status == 0, err
    assert out == output or not output


@pytest.mark.real
@pytest.mark.parametrize(("block", "output"), blocks_of(README))
def test_block_of_readme_needs_only_the_wheel(block: str, output: str, installed: Path, tmp_path: Path) -> None:
    """A block of README runs after `pip install`, without extras, and prints what README says."""
    run = subprocess.run(
        [installed / "python", "-W", "error", "-c", block],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    assert run.stdout == output or not output


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that there is, and a heading of it if it has an anchor."""
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text("utf-8"))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in links]
    missing = [link for link, (target, anchor) in zip(links, targets, strict=True) if not leads(target, anchor)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_headings_are_there_once(page: Path) -> None:
    """No page has a heading twice at the second level: a merge may repeat a section, and links lead to the first."""
    headings = re.findall(r"^## (.*)", page.read_text("utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(set(headings))


def leads(target: Path, anchor: str) -> bool:
    """Tell whether a file exists and has a heading for an anchor, if one is given."""
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
