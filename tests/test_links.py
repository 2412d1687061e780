"""The report of `run.py docs --links`, in which a host without a network takes one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.links import report

pytestmark = pytest.mark.inside

NO_NAME = "HTTPSConnectionPool(...): Max retries exceeded (Caused by NameResolutionError(...))"


def write(folder: Path, *links: tuple[str, str, str]) -> Path:
    """Write a file as Sphinx does."""
    file = folder / "output.json"
    rows = [{"filename": "a.md", "lineno": 3, "status": s, "code": 0, "uri": u, "info": i} for s, u, i in links]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_what_works_is_counted(tmp_path: Path) -> None:
    """Links within the site and those of no host are left out."""
    file = write(
        tmp_path,
        ("working", "https://a.org/", ""),
        ("redirected", "https://a.org/b", "https://a.org/c"),
        ("ignored", "http://localhost:7860", ""),
        ("unchecked", "index", ""),
    )
    assert report(file) == (["Links: 2 work, 0 broken, 0 not reached"], True)


def test_a_broken_link_and_a_host_without_a_network(tmp_path: Path) -> None:
    """A broken link is reported with its place, and a host that cannot be reached once."""
    file = write(
        tmp_path,
        ("broken", "https://a.org/x", "404 Client Error"),
        ("broken", "https://b.org/x", NO_NAME),
        ("timeout", "https://b.org/y", "timed out"),
    )
    assert report(file) == (
        [
            "BROKEN: https://a.org/x in docs/a.md, line 3: 404 Client Error",
            "NOT REACHED: b.org, 2 links",
            "Links: 0 work, 1 broken, 2 not reached",
        ],
        False,
    )
