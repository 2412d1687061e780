"""The Python blocks of README and the docs: the needs of each, and its output.

A comment above a block lists the needs of the block, in parts between semicolons:

* ``bot: replies="It is noon."``: an embedded bot with these arguments. Its URL replaces the reader's bot's.
* ``files: question.wav``: recordings of a voice, in the folder where the block runs.
* ``with: flask``: packages that the reader has, apart from the extras that the page names above the block.
* ``stop``: the block waits for ever; Ctrl-C ends it as soon as the bot has a session.
* ``file: test_shop.py``: a part of a file, which the tests of the tutorial join. It does not run alone.
* ``compile``: the block needs a bot or a process that no test has. It compiles, and the names that it uses exist.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from rtvi_sync.testing import EmbeddedBot, Reply

from .machine import ROOT

URL = "http://localhost:7860"  # of the reader's bot
SPEECH = ROOT / "rtvi_sync" / "cli" / "speech.wav"
# The needs of a block of Python, the block, and the indented output that follows it, if one does.
_BLOCK = re.compile(
    r"^(?:<!-- ([^\n]*) -->\n)?```python\n(.*?)^```\n(?:\n((?: {4}[^\n]*\n)+))?", re.DOTALL | re.MULTILINE
)
_EXTRAS = re.compile(r"\brtvi_sync\[([\w,]+)\]")


@attrs.frozen(kw_only=True)
class Needs:
    """The needs of a block, from the comment above it."""

    bot: str | None = None
    files: list[str] = attrs.field(factory=list)
    packages: list[str] = attrs.field(factory=list)
    stops: bool = False
    part_of: str | None = None
    runs: bool = True

    @classmethod
    def read(cls, comment: str) -> Needs:
        """Read a comment; a part that is no switch is an error."""
        given: dict[str, Any] = {}
        for part in filter(None, map(str.strip, comment.split(";"))):
            name, _, value = part.partition(":")
            if name == "bot":
                given["bot"] = value
            elif name in ("files", "with"):
                given["files" if name == "files" else "packages"] = value.replace(",", " ").split()
            elif name == "file":
                given["part_of"] = value.strip()
            elif part == "stop":
                given["stops"] = True
            elif part == "compile":
                given["runs"] = False
            else:
                raise ValueError(f"no such switch: {part}")
        return cls(**given)

    @contextlib.contextmanager
    def met(self, folder: Path) -> Iterator[EmbeddedBot | None]:
        """Put the files into a folder, and yield the bot, if one is needed."""
        for name in self.files:
            shutil.copy(SPEECH, folder / name)
        if self.bot is None:
            yield None
            return
        with eval(f"EmbeddedBot({self.bot})", {"EmbeddedBot": EmbeddedBot, "Reply": Reply}) as bot:  # noqa: S307 # nosec B307
            yield bot


@attrs.frozen
class Block:
    """A block of Python.

    Attributes:
        number: its place on the page, from 1.
        needs: what its comment says.
        code: the program.
        output: what it prints; "" if the page shows nothing.
        extras: the extras that the page names between the block before it and this one, such as "sounddevice,aec".
    """

    number: int
    needs: Needs
    code: str
    output: str
    extras: str

    @property
    def has_tests(self) -> bool:
        """True if it is a file of tests, for pytest."""
        return "def test_" in self.code


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    text = page.read_text("utf-8")
    found, end = [], 0
    for number, match in enumerate(_BLOCK.finditer(text), 1):
        above = text[end : match.start()].rpartition("\n#")[2]
        extras = ",".join(_EXTRAS.findall(above))
        found.append(Block(number, Needs.read(match[1] or ""), match[2], textwrap.dedent(match[3] or ""), extras))
        end = match.end()
    return found
