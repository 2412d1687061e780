"""Programs in a terminal: a pseudo-terminal runs them, pyte keeps the screen, and rich draws it as SVG."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Final

import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT: Final = Path(__file__).parents[2]
_PATIENCE = 60.0  # seconds
_CHAR_WIDTH = 12.2  # pixels, in SVG by rich
_TICK = 0.1  # seconds between two looks at the screen

_THEME: Final = TerminalTheme(
    background=(17, 24, 39),
    foreground=(229, 231, 235),
    normal=[
        *((55, 65, 81), (248, 113, 113), (74, 222, 128), (250, 204, 21)),
        *((96, 165, 250), (192, 132, 252), (34, 211, 238), (229, 231, 235)),
    ],
    bright=[
        *((156, 163, 175), (252, 165, 165), (134, 239, 172), (253, 224, 71)),
        *((147, 197, 253), (216, 180, 254), (103, 232, 249), (255, 255, 255)),
    ],
)
# As rich's own, without fonts from another server: each line of text has its length, so that any font fits.
_FORMAT: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""


class Terminal:
    """A program in a terminal of a size, whose screen is kept. A context manager.

    Args:
        command: the words of the command.
        columns, rows: of the terminal.
        folder: where the program runs.
    """

    def __init__(self, command: Sequence[object], columns: int, rows: int, folder: Path) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._folder = str(folder).encode()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "COLUMNS")}
        environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._process = subprocess.Popen(
            [*map(str, command)],
            cwd=folder,
            env={**environment, "PYTHONIOENCODING": "utf-8"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    @property
    def lines(self) -> list[str]:
        """Lines of the screen, without blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    def until(self, seen: Callable[[list[str]], object]) -> None:
        """Wait until `seen(lines)` is true."""
        end = time.monotonic() + _PATIENCE
        while not seen(self.lines):
            if time.monotonic() > end:
                raise TimeoutError("the terminal shows:\n" + "\n".join(self.lines))
            self._read()

    def finish(self) -> None:
        """Wait for the end of the program."""
        end = time.monotonic() + _PATIENCE
        while self._read():
            if time.monotonic() > end:
                raise TimeoutError("the program does not end:\n" + "\n".join(self.lines))

    def svg(self, title: str) -> str:
        """Return the screen as a picture, without blank lines at its end."""
        rows = [self._row(number) for number in range(self._screen.lines)]
        while rows and not rows[-1].plain:
            rows.pop()
        console = Console(record=True, width=self._screen.columns, file=StringIO(), force_terminal=True)
        console.print(Text("\n").join(rows), soft_wrap=True)
        return console.export_svg(title=title, theme=_THEME, code_format=_FORMAT, unique_id="t")

    def _row(self, number: int) -> Text:
        chars = [self._screen.buffer[number][column] for column in range(self._screen.columns)]
        while chars and not chars[-1].data.strip() and not chars[-1].reverse:
            chars.pop()
        row = Text()
        for style, same in groupby(chars, _style_of):  # in few parts, which make a small file
            row.append("".join(char.data for char in same), style)
        return row

    def _read(self) -> bool:
        """Take what the program has written. Return whether it may write more."""
        if not select.select([self._ours], [], [], _TICK)[0]:
            return self._process.poll() is None
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux: no process has the terminal any more
            return False
        data = data.replace(self._folder, b"/home/you")  # of a reader's machine, not of this one
        self._stream.feed(_FAINT.sub(_GREY, data))
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._ours)


# pyte ignores faint text, so a grey stands for it.
_FAINT: Final = re.compile(rb"\x1b\[(?:0;)?2m")
_GREY: Final = b"\x1b[90m"


def _style_of(char: pyte.screens.Char) -> Style:
    """Return the style of a character."""
    names = {"brown": "yellow", "brightbrown": "bright_yellow"}
    colours = []
    for colour in (char.fg, char.bg):
        name = names.get(colour, colour.replace("bright", "bright_"))
        colours.append(f"#{colour}" if re.fullmatch(r"[0-9a-f]{6}", colour) else name)
    return Style(color=colours[0], bgcolor=colours[1], bold=char.bold, underline=char.underscore, reverse=char.reverse)


def text_in(svg: str) -> str:
    """Return the text of a picture of a terminal, line by line."""
    lines: dict[float, str] = {}
    for part in re.finditer(r'<text class="t-r[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        row = float(part[2])
        column = round(float(part[1]) / _CHAR_WIDTH)
        lines[row] = lines.get(row, "").ljust(column) + html.unescape(part[3]).replace("\xa0", " ")
    return "\n".join(lines[row].rstrip() for row in sorted(lines))
