"""The output of a command: lines, tables, bars and, on a terminal, text that may still change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, TextIO

from rtvi_sync.protocol.text import clean
from rtvi_sync.recording.tables import columns, rich_table

# The level of an empty bar: quiet speech at some distance is above it, a quiet room is not.
_MIN_DBFS = -60.0


class Screen(Protocol):
    """The output of a command. Use it as a context manager, on one thread.

    Attributes:
        live: whether partial text is shown.
    """

    live: bool

    def print_line(self, text: str) -> None:
        """Print one line, which stays."""

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
    """Return the screen for a stream (None: stdout): with rich if installed, on a terminal; else plain."""
    stream = stream or sys.stdout
    if stream.isatty():
        try:
            return RichScreen(stream)
        except ModuleNotFoundError:
            pass
    return PlainScreen(stream)


class PlainScreen:
    """Lines of text, each flushed; partial text is not shown."""

    live: bool = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def print_line(self, text: str) -> None:
        """Print one line, which stays."""
        print(clean(text), file=self._stream, flush=True)

    def show_partial(self, text: str) -> None:
        """Do nothing: text that is written here cannot be replaced."""

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
        # Each call draws; a refresh thread is not needed. stderr is left alone, because it may be another file.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def print_line(self, text: str) -> None:
        """Print one line, which stays."""
        from rich.text import Text

        self._live.update(Text(""), refresh=True)
        self._console.print(Text(clean(text)), soft_wrap=True)

    def show_partial(self, text: str) -> None:
        """Draw text until the next line; what does not fit is cut off."""
        from rich.text import Text

        self._live.update(Text(clean(text), style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)

    def print_table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Print a table, drawn by rich."""
        from rich.text import Text

        for line in title.splitlines():
            self.print_line(line)
        self._live.update(Text(""), refresh=True)
        self._console.print(rich_table(headers, rows, texts))

    def show_partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Draw a table until the next line."""
        self._live.update(rich_table(headers, rows, texts), refresh=True)

    def __enter__(self) -> RichScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


def level_bar(dbfs: float, width: int, encoding: str = "utf-8") -> str:
    """Return a bar of `width` characters, empty at -60 dBFS and below, full at 0 dBFS.

    Args:
        dbfs: The level.
        width: The number of characters.
        encoding: The terminal's. If it has no block characters, the bar is made of ASCII characters.
    """
    filled = max(0, min(width, round(width * (1 - dbfs / _MIN_DBFS))))
    full, empty = _characters(encoding)
    return full * filled + empty * (width - filled)


def _characters(encoding: str) -> tuple[str, str]:
    characters = "█", "·"
    try:
        "".join(characters).encode(encoding)
    except (UnicodeError, LookupError):
        return "#", "."
    return characters
