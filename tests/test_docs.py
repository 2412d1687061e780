"""Every Python block of the README and the docs runs, from the project's folder, as a reader would run it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE), 1
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_block_runs(block: str, tmp_path: Path) -> None:
    """A block of the documentation runs to its end in a process of its own, without a Python warning."""
    # What a block writes goes to a folder of the test's; what it reads lies where the reader finds it.
    shutil.copytree(ROOT / "rtvi_sync" / "cli", tmp_path / "rtvi_sync" / "cli", ignore=shutil.ignore_patterns("*.py"))

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import sys; sys.path[0] = {str(ROOT)!r}\n{block}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )

    assert run.returncode == 0, run.stderr


def test_links_lead_somewhere() -> None:
    """Every relative link of a page names a file that there is."""
    missing = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]

    assert missing == []


def test_errors_by_message_has_real_messages() -> None:
    """Each text of the page is a part of a message in the package's source."""
    source = "\n".join(path.read_text("utf-8") for path in (ROOT / "rtvi_sync").rglob("*.py"))
    texts = re.findall(r"^\| `(.+?)` \|", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)

    assert len(texts) > 10
    assert [text for text in texts if text not in source] == []
