"""A user's place where there is no terminal, or only half of one."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from rtvi_sync.cli.console import Key, LineConsole, Status
from rtvi_sync.cli.console_choice import console_for
from rtvi_sync.cli.screen import PlainScreen, RichScreen


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, int]]:
    """A stream to read from, and the descriptor by which to write to it."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as stream:
        yield stream, writing


def taken(console: LineConsole) -> str | Key:
    """What is typed next."""
    end = time.monotonic() + 10
    while (next_ := console.take()) is None:
        assert time.monotonic() < end, "nothing was typed"
        time.sleep(0.001)
    return next_


def test_lines_are_taken_one_by_one_to_the_end(pipe: tuple[TextIO, int]) -> None:
    """However they are cut on their way, and the last without its end; what is no text does no harm."""
    stream, writing = pipe
    with LineConsole(stream, PlainScreen(io.StringIO())) as console:
        assert console.take() is None
        os.write(writing, b"Hel")
        os.write(writing, b"lo\nGr\xc3")
        assert taken(console) == "Hello"
        os.write(writing, b"\xbc\xc3\x9fe \xff\nlast")
        os.close(writing)
        assert [taken(console), taken(console), taken(console)] == ["Grüße \ufffd", "last", Key.END]
        assert not console.attended


def test_a_closed_stdin_is_an_end() -> None:
    """A program may be started without one."""
    with LineConsole(None, PlainScreen(io.StringIO())) as console:
        assert console.take() is Key.END
        assert not console.attended


def test_lines_out_are_plain_and_clean() -> None:
    """Who said what; what still changes is not shown."""
    out = io.StringIO()
    with LineConsole(None, PlainScreen(out)) as console:
        console.line("connected \x1b[2J")
        console.show(Status(partial=("you", "Hel")))
        console.said("you", "Hello\n")
    assert out.getvalue() == "connected [2J\nyou  Hello \n"


def test_words_that_come_are_shown_where_only_the_output_is_a_terminal(pipe: tuple[TextIO, int]) -> None:
    """Lines come by a pipe; rich shows what is being said."""
    stream, writing = pipe
    os.close(writing)
    out = Terminal()
    console = console_for(stream, out)
    assert isinstance(console, LineConsole)
    assert isinstance(console._screen, RichScreen)
    with console:
        console.show(Status(partial=("bot", "Hel")))
    assert "bot  Hel" in out.getvalue()


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_can_nothing_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn over what the user types there."""
    monkeypatch.setenv("TERM", term)
    console = console_for(Terminal(), Terminal())
    assert isinstance(console, LineConsole)
    assert isinstance(console._screen, PlainScreen)
    assert console.attended


def test_without_prompt_toolkit_a_terminal_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a word about what would bring more."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "rtvi_sync.cli.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit.application", None)
    console = console_for(Terminal(), Terminal())
    assert isinstance(console, LineConsole)
    assert capsys.readouterr().err == 'For meters and keys: pip install "rtvi_sync[cli]"\n'
