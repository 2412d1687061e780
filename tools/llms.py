"""The files for language models: `llms.txt`, an index of the pages, and `llms-full.txt`, the text for programming.

The build of the site writes both into its root; `python -m tools.llms FOLDER` writes them alone. The second one has the
pages of Start and Guides as they are, and the classes by signature and docstring, because the pages of the reference
have only their names.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import rtvi_sync

DOCS: Final = Path(__file__).parents[1] / "docs"
SITE: Final = ""  # the address of the site with a slash at its end, once it has one; until then links are relative
LIMIT: Final = 300_000  # bytes of `llms-full.txt`
GROUPS: Final = {"start": "Start", "guides": "Guides", "reference": "Reference", "background": "Optional"}
_FIRST: Final = "guides/errors.md"  # the page that agents most often need
# Guides for few readers: the first to be left out, from the end, if the file would be too large. The index has them.
_LAST: Final = (
    "testing-phone-bots.md",
    "flask.md",
    "audio.md",
    "load.md",
    "transport.md",
    "webrtc.md",
    "telephony.md",
    "old-bots.md",
    "otel.md",
)
# The classes that are described whole. Of others, only the first paragraph of each docstring is kept.
_WHOLE: Final = ("connect", "RTVIClient", "Turn", "Expect", "ReconnectPolicy", "Reply", "EmbeddedBot", "run_many")
_MODULES: Final = ("rtvi_sync", "rtvi_sync.media", "rtvi_sync.testing")
_HEAD: Final = """\
# rtvi_sync

> Talk to an RTVI voice bot, such as one built with Pipecat, from ordinary Python: call a method, get the answer, no \
asyncio.

`pip install rtvi_sync` (Python 3.10 or later). `with connect("http://localhost:7860") as client:` connects, and \
`client.ask("...")` returns a `Turn`. It has `bot_text`, `user_text`, `function_calls`, `audio`, latencies in seconds, \
and `expect(...)`, which checks it.
Calls block; every method may be called on any thread.
"""


def index() -> str:
    """Return `llms.txt`."""
    lines = [_HEAD, f"- [All of it in one file]({SITE}llms-full.txt): Start, Guides, and every public class", ""]
    for folder, title in GROUPS.items():
        lines.append(f"## {title}\n")
        lines += [f"- [{title_of(page)}]({SITE}{address(page)}): {summary_of(page)}" for page in pages(folder)]
        lines.append("")
    return "\n".join(lines)


def full() -> str:
    """Return `llms-full.txt`: as many guides as the limit allows."""
    names = ["# Public names", *described()]
    room = LIMIT - sum(len(text.encode()) + 2 for text in (_HEAD, *names))
    guides = [page for folder in ("start", "guides") for page in pages(folder)]
    taken: dict[Path, str] = {}
    for page in sorted(guides, key=lambda page: _LAST.index(page.name) + 1 if page.name in _LAST else 0):
        text = re.sub(r"^<!-- .* -->\n", "", page.read_text("utf-8"), flags=re.MULTILINE).strip()
        room -= len(text.encode()) + 2
        if room < 0:
            break
        taken[page] = text
    return "\n\n".join([_HEAD.strip(), *(taken[page] for page in guides if page in taken), *names]) + "\n"


def pages(folder: str) -> list[Path]:
    """Return the pages of a group, in the order of the tables of contents; errors are the first of the guides."""
    found = dict.fromkeys(
        page
        for source in (DOCS / "index.md", DOCS / folder / "index.md")
        if source.exists()
        for entry in entries(source)
        if (page := (source.parent / f"{entry}.md")).parent == DOCS / folder and page.name != "index.md"
    )
    return sorted(found, key=lambda page: page != DOCS / _FIRST)


def entries(source: Path) -> Iterator[str]:
    """Return the entries of a page's tables of contents."""
    for body in re.findall(r"^```\{toctree\}\n(.*?)^```", source.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        yield from (line for line in body.splitlines() if line and not line.startswith(":"))


def address(page: Path) -> str:
    """Return the address of a page in the site."""
    return page.relative_to(DOCS).with_suffix(".html").as_posix()


def title_of(page: Path) -> str:
    """Return the title of a page."""
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ").replace("`", "")


def summary_of(page: Path) -> str:
    """Return one sentence about a page: the docstring's first line of a class, or the first line of text."""
    text = page.read_text("utf-8").partition("\n")[2]
    named = re.findall(r"^\.\. auto(?:class|function):: ([\w.]+)", text, re.MULTILINE)
    if len(named) == 1:
        module, _, name = named[0].rpartition(".")
        return first_sentence(inspect.getdoc(getattr(importlib.import_module(module), name)) or "")
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = (line for line in prose.splitlines() if re.match(r"[\w`*\[]", line))
    return first_sentence(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", next(lines, "")))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!]) (?=[A-Z`])", paragraph, maxsplit=1)[0].rstrip(":")


def described() -> Iterator[str]:
    """Return each public name with its signature, its docstring, and its members."""
    for module in map(importlib.import_module, _MODULES):
        yield f"## {module.__name__}"
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                yield from _described(name, value)


def _described(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}{_signature(value)}\n\n{_text(name, value)}".rstrip()
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    for member, found in inspect.getmembers(value):
        if _is_own(value, member) and (isinstance(found, property) or inspect.isroutine(found)):
            text = _text(name, found)
            if text:
                yield f"{name}.{member}{'' if isinstance(found, property) else _signature(found)}\n{text}"


def _is_own(cls: type, member: str) -> bool:
    """Return whether a member is public, of this package, and not from a base class that has its own entry."""
    owner = next((base for base in cls.__mro__ if member in vars(base)), object)
    is_elsewhere = owner is not cls and owner.__name__ in rtvi_sync.__all__
    return not member.startswith("_") and owner.__module__.startswith("rtvi_sync") and not is_elsewhere


def _text(name: str, value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return text if name in _WHOLE else text.partition("\n\n")[0]


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value)).replace("(self, ", "(").replace("(self)", "()")
        return re.sub(r"'([^']*)'", r"\1", text)  # annotations that are written as texts
    except (TypeError, ValueError):
        return ""


def write(folder: Path) -> None:
    """Write both files into a folder."""
    folder.joinpath("llms.txt").write_text(index(), "utf-8")
    folder.joinpath("llms-full.txt").write_text(full(), "utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
