"""The page of errors, made of the table in `rtvi_sync/explanations.py`. `python -m tools.errors_page` writes it.

Each error has its text, its cause and its cure, in this order. The text before the page's first heading of a group is
written by hand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from rtvi_sync.explanations import EXPLANATIONS
from tools.llms import title_of

DOCS = Path(__file__).parents[1] / "docs"


def page_named(name: str) -> Path:
    """Return the page with this name in one of the groups that explain: start, guides or background."""
    (page,) = (path for path in DOCS.rglob(f"{name}.md") if path.parent.name != "reference")
    return page


PAGE = DOCS / "guides" / "errors.md"


def page() -> str:
    """Return the text of the page."""
    head = re.split(r"^## ", PAGE.read_text("utf-8"), maxsplit=1, flags=re.MULTILINE)[0]
    return head + "\n".join(_paragraphs())


def _paragraphs() -> Iterator[str]:
    for group, explanations in EXPLANATIONS.items():
        yield f"## {group}\n"
        for each in explanations:
            more = [f"More: {_link(each.page)}."] if each.page else []
            cause, cure = _sentences(each.cause), [*_sentences(each.cure), *more]
            yield "\n".join([f"### {each.word}\n", f"`{each.text}`\n", *cause, "", *cure, ""])


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text, each of which is a line of the page."""
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def _link(name: str) -> str:
    page = page_named(name)
    return f"[{title_of(page)}]({Path(os.path.relpath(page, PAGE.parent)).as_posix()})"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
