"""What a command shows: lines as they come, on a terminal also what is still changing, and tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, TextIO

from rtvi_sync.recording.tables import rich_table
from rtvi_sync.recording.text import clean, columns


class Screen(Protocol):
    """Where a command writes. Use it as a context manager, on one thread.

    Attributes:
        live: what may still change is shown.
    """

    live: bool

    def line(self, text: str) -> None:
        """Show one line for good."""

    def partial(self, text: str) -> None:
        """Show what may still change, in place of the last partial text, until the next line."""

    def table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Show a table. The first `texts` columns are text, the others are numbers."""

    def partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """As `partial()`."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def screen_for(stream: TextIO | None = None) -> Screen:
    """The screen for a stream (None: stdout): with rich on a terminal, where that is installed, else plain."""
    stream = stream or sys.stdout
    if stream.isatty():
        try:
            return RichScreen(stream)
        except ModuleNotFoundError:
            pass
    return PlainScreen(stream)


class PlainScreen:
    """Lines of text, each written at once; shows nothing that may still change."""

    live: bool = False

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def line(self, text: str) -> None:
        print(clean(text), file=self._stream, flush=True)

    def partial(self, text: str) -> None:
        """Nothing: what is written here stays."""

    def table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        cells = [[clean(cell) for cell in row] for row in (headers, *rows)]
        for line in (*title.splitlines(), *columns(cells[0], cells[1:], texts)):
            self.line(line.rstrip())

    def partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        """Nothing."""

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to restore."""


class RichScreen:
    """A terminal, by way of rich.

    Raises:
        ModuleNotFoundError: rich is not installed.
    """

    live: bool = True

    def __init__(self, stream: TextIO, **console: Any) -> None:
        from rich.console import Console as RichConsole
        from rich.live import Live

        self._console = RichConsole(file=stream, highlight=False, markup=False, emoji=False, **console)
        # No thread of its own: it is drawn anew when there is something new. stderr may lead elsewhere.
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def line(self, text: str) -> None:
        from rich.text import Text

        self._live.update(Text(""), refresh=True)
        self._console.print(Text(clean(text)), soft_wrap=True)

    def partial(self, text: str) -> None:
        from rich.text import Text

        self._live.update(Text(clean(text), style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)

    def table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        from rich.text import Text

        for line in title.splitlines():
            self.line(line)
        self._live.update(Text(""), refresh=True)
        self._console.print(rich_table(headers, rows, texts))

    def partial_table(self, headers: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> None:
        self._live.update(rich_table(headers, rows, texts), refresh=True)

    def __enter__(self) -> RichScreen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
