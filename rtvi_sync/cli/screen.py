"""The output of a command: lines, tables, bars and, on a terminal, text that may still change."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TextIO, TypeAlias

from rtvi_sync.protocol.text import clean
from rtvi_sync.recording.tables import columns, rich_table

# The level of an empty bar, below distant quiet speech and above a quiet room.
_MIN_DBFS = -60.0


Style: TypeAlias = Literal["", "faint", "good", "warning", "error"]
"""The style of a line: a remark beside the conversation, or something right, improvable or wrong."""

_STYLES: Final[dict[Style, str]] = {"": "", "faint": "dim", "good": "green", "warning": "yellow", "error": "red"}
_WHO: Final = {"you": "bold green", "bot": "bold cyan"}


class Screen(Protocol):
    """The output of a command. Use it as a context manager, on one thread.

    Attributes:
        live: True if partial text is shown.
    """

    live: bool

    def print_line(self, text: str, style: Style = "", mark: str = "") -> None:
        """Print one permanent line after a mark. If there is a mark, only the mark has the style."""

    def print_utterance(self, who: str, text: str, lead: str = "") -> None:
        """Print an utterance after a lead such as the time."""

    def show_partial(self, text: str) -> None:
        """Show text that may still change, in place of the last partial text, until the next line."""

    def print_table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Print a table. The first `texts` columns are text, the others are numbers."""

    def show_partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Show a table as `show_partial()` shows text."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def screen_for(stream: TextIO | None = None) -> Screen:
    """Return the screen for a stream (None: stdout): a rich one on a terminal if rich is installed, otherwise plain."""
    stream = stream or sys.stdout
    if stream.isatty():
        try:
            return RichScreen(stream)
        except ModuleNotFoundError:
            pass
    return PlainScreen(stream)


class PlainScreen:
    """Lines of text, each flushed. Partial text is not shown."""

    live: bool = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print_line(self, text: str, style: Style = "", mark: str = "") -> None:  # noqa: ARG002
        """Print one permanent line, without its style."""
        print(clean(mark + text), file=self._stream, flush=True)

    def print_utterance(self, who: str, text: str, lead: str = "") -> None:
        """Print an utterance after a lead such as the time."""
        self.print_line(f"{lead}{who}  {text}")

    def show_partial(self, text: str) -> None:
        """Do nothing, because this output cannot replace text."""

    def print_table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Print a table; rows and headers are cleaned."""
        cells = [[clean(cell) for cell in row] for row in (headers, *rows)]
        for line in (*title.splitlines(), *columns(cells[0], cells[1:], texts)):
            self.print_line(line.rstrip())

    def show_partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Do nothing, as in `show_partial()`."""

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class RichScreen:
    """A terminal, drawn by rich.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """

    live: bool = True

    def __init__(self, stream: TextIO, **console: Any) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._console = RichConsole(file=stream, highlight=False, markup=False, emoji=False, **console)
        # Each call draws, so no refresh thread is needed. stderr is left alone, because it may be another file.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def print_line(self, text: str, style: Style = "", mark: str = "") -> None:
        """Print one permanent line, wrapped between words. A long path is not broken."""
        from rich.text import Text

        self._live.update(Text(""), refresh=True)
        line = Text.assemble((clean(mark), _STYLES[style]), (clean(text), "" if mark else _STYLES[style]))
        is_long = any(cell_width(word) > self._console.width for word in line.plain.split())
        self._console.print(line, soft_wrap=is_long)

    def print_utterance(self, who: str, text: str, lead: str = "") -> None:
        """Print an utterance, wrapped beside the name."""
        from rich.table import Table
        from rich.text import Text

        self._live.update(Text(""), refresh=True)
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(no_wrap=True)
        line.add_column(overflow="fold")
        line.add_row(Text.assemble((clean(lead), "dim"), (clean(who), _WHO.get(who, "bold"))), Text(clean(text)))
        self._console.print(line)

    def show_partial(self, text: str) -> None:
        """Draw text until the next line, cut to the width of the terminal."""
        from rich.text import Text

        self._live.update(Text(clean(text), style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)

    def print_table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Print a table, drawn by rich."""
        from rich.text import Text

        for line in title.splitlines():
            self.print_line(line)
        self._live.update(Text(""), refresh=True)
        self._console.print(rich_table(headers, rows, texts, self._console.width))

    def show_partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Draw a table until the next line."""
        self._live.update(rich_table(headers, rows, texts, self._console.width), refresh=True)

    def __enter__(self) -> RichScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def level_bar(dbfs: float, width: int, encoding: str = "utf-8") -> str:
    """Return a bar of `width` characters, empty at -60 dBFS and below, full at 0 dBFS.

    Args:
        dbfs: Level in dBFS.
        width: Number of characters.
        encoding: Encoding of the terminal. Without block characters, the bar uses ASCII.
    """
    return progress_bar(1 - dbfs / _MIN_DBFS, width, encoding)


def progress_bar(share: float, width: int, encoding: str = "utf-8") -> str:
    """Return a bar of `width` characters, full at 1; see `level_bar()`."""
    filled = max(0, min(width, round(width * share)))
    full, empty = _characters(encoding)
    return full * filled + empty * (width - filled)


def _characters(encoding: str) -> tuple[str, str]:
    characters = "█", "·"
    try:
        "".join(characters).encode(encoding)
    except (UnicodeError, LookupError):
        return "#", "."
    return characters


def cell_width(text: str) -> int:
    """Return the number of columns of a text on a terminal: two for wide characters, none for accents."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.combining(each) != 0 for each in text)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text, wrapped between words. A word wider than a line is not broken."""
    lines: list[str] = []
    room = 0
    for word in text.split():
        needed = cell_width(word)
        if lines and needed < room:
            lines[-1] += f" {word}"
            room -= needed + 1
        else:
            lines.append(word)
            room = width - needed
    return lines or [""]
