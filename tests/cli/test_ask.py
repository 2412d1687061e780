"""`rtvi-sync ask`: the answer as text and as JSON, files, and exit statuses."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import Recording
from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot, Fault, Reply
from tests.support.disks import full_disk

KEYS = [
    *("ok", "text", "spoken_text", "status", "calls", "voice_to_voice", "time_to_first_token", "time_to_first_audio"),
    *("errors", "rtvi", "bot", "error"),
]


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Return the JSON of a question, which is all of stdout, and whose `ok` is the exit status."""
    status = main(["ask", *map(str, arguments), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [*document] == KEYS
    assert document["ok"] is (status == 0)
    return document


def test_a_typed_question(bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """The bot's text is all of stdout."""
    assert main(["ask", bot.base_url, "How are you?"]) == 0
    assert capsys.readouterr() == ("You said: How are you?\n", "")


def test_json(bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the text, the status, the latencies in seconds, and the bot's description."""
    document = asked(capsys, bot.ws_url, "How are you?", "--transport", "eval")
    assert (document["text"], document["status"], document["voice_to_voice"]) == (
        "You said: How are you?",
        "complete",
        None,
    )
    assert 0 < document["time_to_first_token"] <= document["time_to_first_audio"] < 30
    assert (document["rtvi"], document["bot"], document["error"]) == (
        "2.2.0",
        "RTVI 2.2.0, rtvi_sync.testing 0.1.0",
        None,
    )


def test_a_spoken_question_and_files(
    bot: EmbeddedBot, one_word: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A WAV file is said; the bot's voice is in --out, both voices and the messages in --record."""
    out, record = tmp_path / "out.wav", tmp_path / "both.wav"
    document = asked(capsys, bot.base_url, "--wav", one_word, "--out", out, "--record", record)
    assert document["text"] == "You said: Hello my bot."
    assert document["voice_to_voice"] > 0
    with wave.open(str(out)) as file:
        assert file.getnframes() / file.getframerate() > 0.2
    assert [turn.user_text for turn in Recording.load(record).turns()] == ["Hello my bot."]


@pytest.mark.parametrize("order", ["UtTo", "UoTt", "toUT", "oUtT", "tUTo"])
def test_the_text_stands_anywhere(order: str, bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """The question may stand before, between and behind the options."""
    words = {"U": [bot.ws_url], "T": ["How are you?"], "t": ["--transport", "eval"], "o": ["--timeout", "20"]}
    assert main(["ask", *(word for each in order for word in words[each])]) == 0
    assert capsys.readouterr() == ("You said: How are you?\n", "")


def test_a_text_that_looks_like_an_option(bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """A text that starts with a hyphen goes after --."""
    assert main(["ask", bot.ws_url, "--transport", "eval", "--", "-5 degrees?"]) == 0
    assert capsys.readouterr().out == "You said: -5 degrees?\n"


def test_the_sample_by_telephone(bot: EmbeddedBot, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A phone bot can be asked without a file of one's own; the command says where the answer is."""
    out = tmp_path / "answer.wav"
    assert main(["ask", bot.ws_url, "--transport", "twilio", "--sample", "--out", str(out)]) == 0
    assert capsys.readouterr().err.splitlines()[0] == f"The bot's voice is in {out}"
    with wave.open(str(out)) as file:
        assert file.getnframes() / file.getframerate() > 0.2


def test_a_file_that_is_missing(bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the texts that can be said without a file."""
    assert main(["ask", bot.ws_url, "--wav", "nosuch.wav"]) == 2
    assert "or pass --sample in place of --wav" in capsys.readouterr().err


def test_a_long_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """All of a long line is printed."""
    long = "word " * 500 + "end"
    with EmbeddedBot(replies=Reply(long, say="")) as bot:
        assert main(["ask", bot.base_url, "Hello"]) == 0
    assert capsys.readouterr().out == f"{long}\n"


@pytest.mark.parametrize("option", ["--out", "--record"])
def test_a_disk_that_is_full(option: str, bot: EmbeddedBot, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be written fails the command, and loses no part of the answer or the JSON."""
    with full_disk(100):
        document = asked(capsys, bot.base_url, "How are you?", option, tmp_path / "a.wav")
    assert (document["ok"], document["text"]) == (False, "You said: How are you?")
    assert "a.wav" in document["error"]


def test_a_bot_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A bot that reports an error instead of an answer fails the command, with its error, also in JSON."""
    with EmbeddedBot(faults=[Fault("error")]) as bot:
        assert main(["ask", bot.base_url, "Hello"]) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines()[-1].startswith(
            "rtvi-sync ask: The bot reported an error and answered nothing: The model"
        )
        document = asked(capsys, bot.base_url, "Hello")
    assert (document["status"], document["errors"]) == ("failed", ["The model failed"])
    assert "The model failed" in document["error"]


def test_an_answer_that_is_not_over_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The bot's words before --timeout are in the JSON, beside the error."""
    with EmbeddedBot(replies="Wait for me. " * 40) as bot:
        document = asked(capsys, bot.base_url, "Hello", "--timeout", "2")
    assert document["text"].startswith("Wait for me.")
    assert document["status"] == "in_progress"
    assert re.search(r"within 1\.\d\d? s ", document["error"])


def test_no_bot(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a bot the JSON has the error, and nothing else."""
    document = asked(capsys, "ws://127.0.0.1:1/ws", "Hello")
    assert "cannot be reached" in document["error"]
    assert {name for name in KEYS if document[name]} == {"error"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        [""],
        ["Hello", "--wav", "a.wav"],
        ["Hello", "--sample"],
        ["--wav", "nosuch.wav"],
        ["Hello", "--out", "a.mp3"],
        ["Hi", "--timeout", "0"],
    ],
    ids=" ".join,
)
def test_wrong_arguments(arguments: list[str], bot: EmbeddedBot, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that cannot be used have the status 2, before anything is asked."""
    try:
        status: object = main(["ask", bot.base_url, *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("rtvi-sync ask: ")
