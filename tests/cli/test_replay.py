"""`rtvi-sync replay`: the bot of a recording."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rtvi_sync import connect
from rtvi_sync.cli import main
from rtvi_sync.testing import EmbeddedBot
from tests.support.served import served
from tests.support.slowness import GUARD


def test_a_replay(tmp_path: Path) -> None:
    """A recording is served; the client's deviations are listed at the end."""
    with (
        EmbeddedBot(replies="It is noon.") as bot,
        connect(bot.ws_url, mic=False, speaker=False) as client,
        client.record(tmp_path / "talk"),
    ):
        client.ask("What time is it?", GUARD)
    with served("replay", str(tmp_path / "talk.jsonl"), "--pace", "fast") as (url, process):
        with connect(url, mic=False, speaker=False, connect_timeout=GUARD) as client:
            assert client.ask("What day is it?").bot_text == "It is noon."
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ws://")
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
