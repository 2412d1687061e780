"""The pictures of README and docs are those that `run.py docs --pictures` makes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.required import missing
from tests.support.slowness import GUARD
from tools.pictures import ALL, DIAGRAMS, FOLDER, PAGES, TERMINALS, make

ROOT = Path(__file__).parents[1]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)]*_static/([\w.-]+))\)")
#: What differs from run to run: numbers, meters, and what the bot does just now.
CHANGING = re.compile(r"[\d,.]*\d|[█·]+|\b(?:listening|thinking|speaking)\b", re.IGNORECASE)


@pytest.mark.parametrize("name", DIAGRAMS)
def test_a_diagram_is_fresh(name: str) -> None:
    """A diagram is what its source says, byte by byte."""
    assert dict(make([name])) == {name: (FOLDER / name).read_bytes()}


def test_each_picture_is_on_a_page_with_its_text() -> None:
    """Each picture is shown, by pages that say in words what is to be seen, and none is large."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {match[3]: match[1] for page in pages for match in IMAGE.finditer(page.read_text("utf-8"))}

    assert {*shown} == {*ALL} == {path.name for path in FOLDER.iterdir()} - {"site.css", "favicon.svg"}
    assert [name for name, words in shown.items() if len(words.split()) < 8] == []
    assert [name for name in ALL if (FOLDER / name).stat().st_size > 150_000] == []


@pytest.mark.matrix  # each takes seconds of Chromium or of a terminal
@pytest.mark.real
@pytest.mark.parametrize("name", [*TERMINALS, *PAGES])
def test_a_picture_shows_what_it_would_show_today(name: str, tmp_path: Path) -> None:
    """A picture that is made again has the same text, apart from times and levels."""
    for module in ("pyte", "PIL", "playwright"):
        pytest.importorskip(module)
    if name in PAGES and shutil.which("chromium") is None:
        missing("Chromium is not installed: run `python3 run.py test --real`")
    command = [sys.executable, "-m", "tools.pictures", "--output", str(tmp_path), name]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * GUARD, check=False)
    assert made.returncode == 0, made.stderr

    assert unchanging(tmp_path / name) == unchanging(FOLDER / name)


def unchanging(path: Path) -> list[str]:
    """Return the lines of a picture's text, without what differs from run to run."""
    if path.suffix == ".svg":
        from tools.pictures.terminal import text_in

        text = text_in(path.read_text("utf-8"))
    else:
        from tools.pictures.pages import text_of

        text = text_of(path)
    return [re.sub(r" +", " ", CHANGING.sub("#", line)).strip() for line in text.splitlines()]
