"""`rtvi-sync explain`: from the word of an error, or its text, to the cure."""

from __future__ import annotations

import pytest

from rtvi_sync.cli import main
from rtvi_sync.explanations import EXPLANATIONS

pytestmark = pytest.mark.inside

HUNG_UP = """\
hung-up: 'The server hung up before the bot had sent anything'
  The server accepted the WebSocket, then the bot failed to start.
  See the bot's log. Give the bot the entry that the message names.
  More: Prepare your Pipecat bot (docs/start/pipecat.md)
"""


@pytest.mark.parametrize(
    "word",
    [
        "hung-up",
        "ws://h/ws failed: The server hung up before the bot had sent anything: see its log.",
        "server hung up before",
        "Server HUNG up before",
        " Hung-Up ",
        "See: rtvi-sync explain hung-up",
    ],
)
def test_a_word_or_a_text(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The word, the error's text and a part of it lead to the same paragraph."""
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out == HUNG_UP


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("was not complete", ["not-complete"]),
        ("The bot's answer did not begin within 6.0 s. See the bot's log", ["no-answer"]),
        ("timeout", ["muted", "no-rtvi", "not-complete", "too-slow"]),
    ],
)
def test_what_is_in_a_cause_or_a_cure(asked: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is in no error's text is looked for in the explanations."""
    assert main(["explain", asked]) == 0
    found = [paragraph.partition(":")[0] for paragraph in capsys.readouterr().out.split("\n\n")]
    assert sorted(found) == words


@pytest.mark.parametrize("words", [["no-bot", "hung-up"], ["no-bot hung-up"]])
def test_several(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Several words are several paragraphs, as an error of several transports needs, in quotes or not."""
    assert main(["explain", *words]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("no-bot: ")
    assert second == HUNG_UP


@pytest.mark.parametrize("words", [[], [""], [" "]])
def test_no_word(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a word, all of them are listed, in a terminal of 80 columns."""
    assert main(["explain", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(EXPLANATIONS) + sum(map(len, EXPLANATIONS.values()))
    assert max(map(len, lines)) <= 80


def test_an_unknown_word(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown word is an error that names the one that was meant."""
    assert main(["explain", "hung-upp"]) == 1
    assert capsys.readouterr().err == "rtvi-sync explain: 'hung-upp' is not explained; did you mean 'hung-up'?\n"


@pytest.mark.parametrize("word", ["e", "a", "x" * 5000])
def test_a_word_that_says_nothing(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A letter finds nothing, though many texts have it; a long word is not repeated whole."""
    assert main(["explain", word]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err) < 160


def test_a_known_word_and_another(capsys: pytest.CaptureFixture[str]) -> None:
    """What is known is explained, and one line says what is not."""
    assert main(["explain", "hung-up", "foo"]) == 1
    shown = capsys.readouterr()
    assert shown.out == HUNG_UP
    assert shown.err == "rtvi-sync explain: 'foo' is not explained; rtvi-sync explain lists those that are\n"


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("StartBotError", "StartBotError: The connect request failed, was refused, or was aborted."),
        ("startboterror", "StartBotError: "),
        ("401", "needs-headers"),
        ("timeout", "too-slow"),
        ("microphone", "no-sound-device"),
    ],
)
def test_other_words(word: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The class, the status and a word of the cause or the cure lead to the error, in a screen at most."""
    assert main(["explain", word]) == 0
    out = capsys.readouterr().out
    assert found in out
    assert len(out.splitlines()) < 24


def test_commands_name_the_word(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that fails ends with the line that names the word."""
    assert main(["ask", "http://127.0.0.1:1", "Hello?"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "  See: rtvi-sync explain no-server"
