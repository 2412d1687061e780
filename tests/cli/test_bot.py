"""`rtvi-sync bot` and `rtvi-sync replay`: bots that are served until the process is told to end."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync import connect
from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.talk_command import environment


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a command that serves a bot; yield its first line and the process."""
    words = [sys.executable, "-W", "error", "-m", "rtvi_sync", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def test_a_bot_that_answers_by_rules() -> None:
    """The first line is the URL, and the bot speaks first and answers by its replies; Ctrl-C ends it."""
    rules = ["--reply", "time=It is noon.", "--reply", "a=b=A=B", "--greeting", "Good day."]
    with served("bot", "--port", "0", "--version", "1.0.0", "--wav-rate", "8000", *rules) as (url, process):
        with connect(url, mic=False, speaker=False, connect_timeout=GUARD) as client:
            assert client.listen().bot_text == "Good day."
            said = [client.ask(words) for words in ("What time is it?", "an a", "You?")]
        process.send_signal(signal.SIGINT)
        assert [*process.communicate(timeout=GUARD), process.returncode] == ["", "", 130]
    assert [turn.bot_text for turn in said] == ["It is noon.", "b=A=B", "You said: You?"]
    assert (said[0].bot, said[0].audio.sample_rate_hz) == ("RTVI 1.0.0", 8000)


def test_json_and_sigterm() -> None:
    """With --json the line is an object with both URLs; SIGTERM ends the sessions and the process."""
    with served("bot", "--port", "0", "--json") as (line, process):
        urls = json.loads(line)
        with connect(urls["ws_url"], text_only=True, connect_timeout=GUARD) as client:
            process.send_signal(signal.SIGTERM)
            assert client.wait(GUARD).initiator == "server"
        assert process.wait(GUARD) == 128 + signal.SIGTERM
    assert urls["url"].startswith("http://127.0.0.1:")


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """A port that is taken is one line, which says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["bot", "--port", str(taken.getsockname()[1])]) == 1
    assert capsys.readouterr().err == (
        "rtvi-sync bot: The bot cannot listen: Address already in use. Pass another --port; 0 takes any free one\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        *(["bot", "--reply", text] for text in ("hello", "=x", "x=", "(=x")),
        *(["bot", "--port", text] for text in ("-1", "65536", "x")),
        ["bot", "--wav-rate", "1"],
        ["replay", "x.jsonl", "--pace", "slow"],
    ],
    ids=" ".join,
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that cannot be used have the status 2 and name the option."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert f"error: argument {arguments[-2]}: " in capsys.readouterr().err


def test_a_replay(tmp_path: Path) -> None:
    """A recording is served; what the client does otherwise is listed at the end."""
    with (
        EmbeddedBot(replies="It is noon.") as bot,
        connect(bot.ws_url, mic=False, speaker=False) as client,
        client.record(tmp_path / "talk"),
    ):
        client.ask("What time is it?", GUARD)
    with served("replay", str(tmp_path / "talk.jsonl"), "--pace", "fast") as (url, process):
        with connect(url, mic=False, speaker=False, connect_timeout=GUARD) as client:
            assert client.ask("What day is it?").bot_text == "It is noon."
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=GUARD)
    assert (out, process.returncode) == ("", 130)
    assert "the recording has send-text" in err
    assert '"content": "What day is it?"' in err


def test_a_file_that_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing or no recording has the status 2."""
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    for path in (tmp_path / "nosuch.jsonl", other):
        assert main(["replay", str(path)]) == 2
        assert capsys.readouterr().err.startswith("rtvi-sync replay: ")
