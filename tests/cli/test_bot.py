"""`rtvi-sync bot`: a bot that answers by rules."""

from __future__ import annotations

import signal

import pytest

from rtvi_sync import connect
from rtvi_sync.cli import main
from tests.support.served import served
from tests.support.slowness import GUARD


def test_a_bot_that_answers_by_rules() -> None:
    """The first line is the URL, and the bot speaks first and answers by its replies; Ctrl-C ends it."""
    rules = ["--reply", "time=It is noon.", "--reply", "a=b=A=B", "--greeting", "Good day."]
    with served("bot", "--port", "0", "--version", "1.0.0", "--wav-rate", "8000", *rules) as (url, process):
        with connect(url, mic=False, speaker=False, connect_timeout=GUARD) as client:
            assert client.listen().bot_text == "Good day."
            said = [client.ask(words) for words in ("What time is it?", "an a", "You?")]
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ws://")
        process.send_signal(signal.SIGINT)
        assert [*process.communicate(timeout=GUARD), process.returncode] == ["", "", 130]
    assert [turn.bot_text for turn in said] == ["It is noon.", "b=A=B", "You said: You?"]
    assert (said[0].bot, said[0].audio.sample_rate_hz) == ("RTVI 1.0.0", 8000)


def test_a_bot_that_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    """The second line is the URL of the WebSocket, which takes calls; a reply without a pattern answers everything."""
    with served("bot", "--port", "0", "--reply", "=One moment, please.") as (url, process):
        assert process.stdout is not None
        ws_url = process.stdout.readline().strip()
        assert (url[:7], ws_url[:5]) == ("http://", "ws://")
        assert main(["ask", ws_url, "Hello", "--transport", "eval"]) == 0
        assert capsys.readouterr().out == "One moment, please.\n"
        assert main(["ask", ws_url, "--sample", "--transport", "telnyx"]) == 0
        assert "The bot spoke for " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["bot", "--reply", text] for text in ("hello", "x=", "(=x")),
        *(["bot", "--port", text] for text in ("-1", "65536", "x")),
        ["bot", "--wav-rate", "1"],
        *(["bot", "--version", text] for text in ("abc", "2", "")),
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
