"""README as the package index shows it, which has no files beside it: links and pictures need whole addresses."""

from __future__ import annotations

import re
from pathlib import Path

_TARGET = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
# Links and pictures of Markdown, of HTML, and those that are defined at the end of a page.
_RELATIVE = re.compile(r"(?:\]\(|\b(?:src|href)=[\"']|^\[[^\]\n]+\]: +)(?!https://|mailto:)([^)\"'\s]+)", re.MULTILINE)


def with_whole_addresses(text: str, repository: str, version: str, tree: Path) -> str:
    """Return a page of the folder `tree` with links to a repository's files of a version in place of relative ones."""

    def address(match: re.Match[str]) -> str:
        path, anchor = match.groups()
        kind = "tree" if (tree / path).is_dir() else "raw" if path.endswith((".png", ".svg")) else "blob"
        return f"{repository}/{kind}/v{version}/{path.rstrip('/')}{anchor}"

    return _TARGET.sub(address, text)


def relative_links(text: str) -> list[str]:
    """Return the targets of a page's links that lead nowhere without its folder, and those without TLS."""
    return _RELATIVE.findall(text)
