"""Mistakes in the pages of the reference, found in the site: `python -m tools.site_check FOLDER`.

Sphinx inserts docstrings and signatures, and prints parts that it does not understand as they are. The build of the
site ends with this check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

# Text of a page that only Python, Sphinx or the package itself can use.
_NOISE: Final = re.compile(
    r"ForwardRef|<f(?:unction|actory)|attr_dict|\b(?:NOTHING|Unpack|ClientT|add_note|alias of)\b|~\w+\.|\.\. \w"
    r"|\b_[a-z]\w*: "
)
_ELSEWHERE: Final = re.compile(r"https?:|mailto:|data:|#|$")
_VOID: Final = frozenset({"br", "img", "hr", "input", "link", "meta", "wbr"})


class _Page(HTMLParser):
    """The text of a page's article without its literals, the names in its lists of fields, and its links."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.fields: list[list[str]] = []
        self.links: list[str] = []
        self._open: list[str] = []
        self._is_name = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the start of an element."""
        given = {name: value or "" for name, value in attrs}
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag == "dd" and given.get("class", "").startswith("field-"):
            self.fields.append([])
        elif tag == "strong" and self._open[-2:] in (["li", "p"], ["dd", "p"]) and self.fields:
            self._is_name = True
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element, and of those inside that need no end."""
        while tag in self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Keep text."""
        if "article" in self._open and not {"pre", "code", "script"} & {*self._open}:
            self.text.append(data)
        if self._is_name and data.isidentifier():
            self.fields[-1].append(data)
        self._is_name = False


def faults(site: Path) -> Iterator[str]:
    """Return the faults of the reference, as texts that start with the name of the page."""
    for path in sorted((site / "reference").glob("*.html")):
        page = _Page(path.read_text("utf-8"))
        text = "".join(page.text)
        for noise in _NOISE.finditer(text):
            around = " ".join(text[max(0, noise.start() - 40) : noise.end() + 20].split())
            yield f"{path.name}: {noise[0].strip()!r} in {around!r}"
        for names in page.fields:
            yield from (f"{path.name}: the field {name!r} twice" for name in sorted({*names}) if names.count(name) > 1)
        for link in sorted({*page.links}):
            if not _ELSEWHERE.match(link) and not (path.parent / unquote(re.split("[#?]", link)[0])).exists():
                yield f"{path.name}: a link to {link!r}, which does not exist"


if __name__ == "__main__":
    sys.exit("\n".join(faults(Path(sys.argv[1]))) or None)
