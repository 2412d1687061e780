"""The line console: stdin or stdout is no terminal, or the terminal's abilities are unknown."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from rtvi_sync.cli.console import Key, LineConsole, Status
from rtvi_sync.cli.screen import PlainScreen
from rtvi_sync.cli.talk import console_for
from tests.support.installed import install_command
from tests.support.streams import Terminal

pytestmark = pytest.mark.inside


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, int]]:
    """Open a pipe: its reading stream and its writing descriptor."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as stream:
        yield stream, writing


def next_input(console: LineConsole) -> str | Key:
    """Wait for the next input, and return it."""
    end = time.monotonic() + 10
    while (item := console.poll()) is None:
        assert time.monotonic() < end, "nothing was typed"
        time.sleep(0.001)
    return item


def test_lines_are_taken_one_by_one_to_the_end(pipe: tuple[TextIO, int]) -> None:
    """Lines may arrive in parts, the last without a line feed, and with bytes that are no text."""
    stream, writing = pipe
    with LineConsole(stream, PlainScreen(io.StringIO())) as console:
        assert console.poll() is None
        os.write(writing, b"Hel")
        os.write(writing, b"lo\nGr\xc3")
        assert next_input(console) == "Hello"
        os.write(writing, b"\xbc\xc3\x9fe \xff\nlast")
        os.close(writing)
        assert [next_input(console), next_input(console), next_input(console)] == ["Grüße \ufffd", "last", Key.END]
        assert not console.interactive


def test_a_byte_order_mark_is_no_text(pipe: tuple[TextIO, int]) -> None:
    """A byte order mark before a line is no text: several files may be piped one after the other."""
    stream, writing = pipe
    os.write(writing, b"\xef\xbb\xbfHello\n\xef\xbb\xbflast")
    os.close(writing)
    with LineConsole(stream, PlainScreen(io.StringIO())) as console:
        assert [next_input(console), next_input(console), next_input(console)] == ["Hello", "last", Key.END]


def test_a_closed_stdin_is_an_end() -> None:
    """A process may be started without stdin."""
    with LineConsole(None, PlainScreen(io.StringIO())) as console:
        assert console.poll() is Key.END
        assert not console.interactive


def test_lines_out_are_plain_and_clean() -> None:
    """Utterances have a speaker; partial text is not shown."""
    out = io.StringIO()
    with LineConsole(None, PlainScreen(out)) as console:
        console.print_line("connected \x1b[2J")
        console.show_status(Status(partial=("you", "Hel")))
        console.print_utterance("you", "Hello\n")
    assert out.getvalue() == "connected  [2J\nyou  Hello \n"


def test_words_that_come_are_shown_where_only_the_output_is_a_terminal(pipe: tuple[TextIO, int]) -> None:
    """Lines are read from a pipe; rich shows the partial utterance."""
    stream, writing = pipe
    os.close(writing)
    out = Terminal()
    console = console_for(stream, out)
    assert isinstance(console, LineConsole)
    with console:
        console.show_status(Status(partial=("bot", "Hel")))
    assert "bot  Hel" in out.getvalue()


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_dumb_terminal_gets_lines(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is drawn over the user's input."""
    monkeypatch.setenv("TERM", term)
    out = Terminal()
    console = console_for(Terminal(), out)
    assert isinstance(console, LineConsole)
    assert console.interactive
    console.show_status(Status(partial=("bot", "Hel")))
    assert out.getvalue() == ""


def test_without_prompt_toolkit_a_terminal_gets_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """stderr names the extra to install."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delitem(sys.modules, "rtvi_sync.cli.terminal", raising=False)
    monkeypatch.setitem(sys.modules, "prompt_toolkit.application", None)
    console = console_for(Terminal(), Terminal())
    assert isinstance(console, LineConsole)
    assert capsys.readouterr().err == f"For meters and keys: {install_command('cli')}\n"
