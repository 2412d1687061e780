"""The whole site, which takes a minute of a processor: `run.py docs`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.required import missing
from tests.support.slowness import GUARD

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).parents[1]
SITE = ROOT / ".cache" / "docs"


@pytest.fixture(scope="module")
def site() -> Path:
    """Build the site."""
    command = [sys.executable, "run.py", "docs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 * GUARD, check=False)
    if "cannot be installed" in done.stderr or "needs Python" in done.stderr:
        missing(f"Sphinx cannot be installed here: {done.stderr[-500:]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "The site is in .cache/docs/index.html"
    return SITE


def test_it_is_built_without_a_warning(site: Path) -> None:
    """Each page of docs/ is in the site, beside the files for search and for language models."""
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}

    assert [str(page) for page in sorted(pages) if not (site / page).exists()] == []
    assert {"searchindex.js", "objects.inv", "llms.txt", "llms-full.txt", "404.html"} <= {
        p.name for p in site.iterdir()
    }


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    """A page and its search work without a network."""
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]*)|<link rel=\"stylesheet\"[^>]* href=\"(https?:[^\"]*)"
    )
    found = {match for page in site.rglob("*.html") for match in loads.findall(page.read_text("utf-8"))}

    assert found == set()


def test_signatures_are_for_readers(site: Path) -> None:
    """The reference shows no stand-ins of attrs for defaults and no names that only type checkers need."""
    pages = [page.read_text("utf-8") for page in (site / "reference").glob("*.html")]

    assert len(pages) > 30
    for noise in ("attr_dict", "NOTHING", "Unpack", "ClientT", "&lt;factory&gt;"):
        assert not any(noise in page for page in pages), noise


def test_a_field_is_described_once(site: Path) -> None:
    """The page of an attrs class has each field in the list of variables, and not as a member, too."""
    page = (site / "reference" / "turn.html").read_text("utf-8")

    assert len(re.findall(r"<strong>bot_text</strong>", page)) == 1
    assert 'id="rtvi_sync.Turn.bot_text"' not in page
    assert 'id="rtvi_sync.Turn.expect"' in page
