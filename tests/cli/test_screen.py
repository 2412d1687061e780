"""Lines, partial lines and tables."""

from __future__ import annotations

import io
import re
import sys

import pytest

from rtvi_sync.cli.screen import PlainScreen, RichScreen, cell_width, level_bar, screen_for, wrapped

pytestmark = pytest.mark.inside


class Terminal(io.StringIO):
    """A stream whose `isatty()` is true."""

    def isatty(self) -> bool:
        """Return True."""
        return True


def test_plain_screen_shows_finished_lines_only() -> None:
    """Partial text is not written to a file or pipe."""
    stream = io.StringIO()
    with screen_for(stream) as screen:
        screen.show_partial("you  Hel")
        screen.print_line("you  Hello\x1b[2J")
    assert isinstance(screen, PlainScreen)
    assert stream.getvalue() == "you  Hello [2J\n"


def test_plain_table_is_aligned() -> None:
    """The first column is aligned left, numbers right, under their headers."""
    stream = io.StringIO()
    PlainScreen(stream).print_table("A title\nof two lines", ("turn", "first audio"), [("1", "640"), ("median", "-")])
    assert stream.getvalue().splitlines() == [
        "A title",
        "of two lines",
        "turn    first audio",
        "1               640",
        "median            -",
    ]


def test_a_plain_table_is_text() -> None:
    """A plain table has no command for a terminal, whatever its title, its headers and its cells are."""
    stream, hostile = io.StringIO(), "\x1b[2J\x1b]0;owned\x07\rfake\x08\u202elive\x9b31m"
    PlainScreen(stream).print_table(hostile, [hostile, "n"], [[hostile, hostile]])
    assert "owned" in stream.getvalue()
    assert stream.getvalue().replace("\n", "").isprintable()


def test_terminal_shows_partial_text_until_the_next_line() -> None:
    """Partial text is drawn and erased; a finished line stays; a server's escape codes are removed."""
    stream = Terminal()
    with RichScreen(stream, force_terminal=True, width=60) as screen:
        screen.show_partial("you  Hel\x1b]0;x\x07")
        assert "you  Hel ]0;x " in stream.getvalue()
        stream.truncate(0)
        screen.print_line("you  [b]Hello[/b] :smile:\x1b]0;x\x07")
        screen.print_table("Title", ("turn", "text"), [("1", "5")])
    shown = stream.getvalue()
    assert "you  [b]Hello[/b] :smile: ]0;x" in shown
    assert "you  Hel]" not in shown
    assert "\x1b]" not in shown
    assert "\x07" not in shown
    assert "Title" in shown


def test_a_mark_has_a_colour() -> None:
    """The mark alone has the style; a plain screen shows none."""
    stream, plain = Terminal(), io.StringIO()
    with RichScreen(stream, force_terminal=True, color_system="standard", width=60) as screen:
        screen.print_line("port", "error", "FAIL  ")
    PlainScreen(plain).print_line("port", "error", "FAIL  ")
    assert "\x1b[31mFAIL  \x1b[0mport" in stream.getvalue()
    assert plain.getvalue() == "FAIL  port\n"


def test_terminal_without_rich_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """rich is optional."""
    assert isinstance(screen_for(Terminal()), RichScreen)
    for name in [name for name in sys.modules if name.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(screen_for(Terminal()), PlainScreen)


@pytest.mark.parametrize(
    ("dbfs", "shown"), [(-100, "····"), (-60, "····"), (-45, "█···"), (-30, "██··"), (0, "████"), (3, "████")]
)
def test_a_bar_is_as_long_as_it_is_loud(dbfs: float, shown: str) -> None:
    """The bar is empty at -60 dBFS and below, full at 0 dBFS."""
    assert level_bar(dbfs, 4) == shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_bar_needs_no_blocks(encoding: str) -> None:
    """Without block characters the bar is made of ASCII characters."""
    assert level_bar(-30, 4, encoding) == "##.."


def test_an_utterance_is_wrapped_beside_its_name() -> None:
    """Words stay whole, and wide characters count twice."""
    stream = Terminal()
    with RichScreen(stream, force_terminal=True, width=30, no_color=True) as screen:
        screen.print_utterance("bot", "One two three four five six seven 国王住在海边。", "  1.0 s  ")
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).splitlines()]
    text = [line for line in lines if line.strip()]
    assert text[0].startswith("  1.0 s  bot  One two")
    assert all(line.startswith(" " * 14) for line in text[1:])
    assert all(cell_width(line) <= 30 for line in text)


def test_wrapped_lines() -> None:
    """A line holds as many words as fit, by the columns that they take; a long word is not broken."""
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("国王 国王 国王", 9) == ["国王 国王", "国王"]
    assert wrapped("a_very_long_path and", 5) == ["a_very_long_path", "and"]
    assert wrapped("", 5) == [""]
