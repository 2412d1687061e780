"""`rtvi-sync talk` as a user starts it, on pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import wave
from collections.abc import Callable
from pathlib import Path

import pytest

from rtvi_sync import cli
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD
from tests.support.talk_command import CONNECTED, command, environment, start
from tests.support.wire import rms


def length_and_loudness(path: Path) -> tuple[float, float]:
    """Return the seconds of a WAV file, and its level."""
    with wave.open(str(path)) as file:
        return file.getnframes() / file.getframerate(), rms(file.readframes(file.getnframes()))


def test_files_and_pipes_are_enough(bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
    """Files and pipes are enough: a WAV file is played, the answer is written to another, and lines are answered."""
    process = start(tmp_path, bot.base_url, "--mic", one_word, "--speaker", "out.wav", "--record", "both.wav")
    shown, errors = process.communicate(b"How are you?\n", timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    lines = shown.decode().splitlines()
    assert lines[0] == CONNECTED
    assert lines[-1] == f"The conversation is in {tmp_path / 'both.wav'} (left: you, right: the bot)"
    assert set(lines[1:-1]) == {
        "you  How are you?",
        "bot  You said: How are you?",
        "you  Hello my bot.",
        "bot  You said: Hello my bot.",
    }
    for name, least in (("out.wav", 0.3), ("both.wav", 1.0)):
        seconds, loudness = length_and_loudness(tmp_path / name)
        assert seconds > least
        assert loudness > 300


@pytest.mark.parametrize("form", [lambda bot: bot.base_url, lambda bot: bot.ws_url], ids=["http", "ws"])
def test_a_bot_that_has_the_eval_route_only(
    form: Callable[[EmbeddedBot], str], eval_bot: EmbeddedBot, one_word: Path, tmp_path: Path
) -> None:
    """A bot that has the eval route only is talked to as any other, by text and by voice."""
    process = start(tmp_path, form(eval_bot), "--mic", one_word, "--speaker", "out.wav", "--record", "both.wav")
    shown, errors = process.communicate(b"How are you?\n", timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    lines = shown.decode().splitlines()
    assert lines[0] == CONNECTED
    assert {"bot  You said: How are you?", "you  Hello my bot.", "bot  You said: Hello my bot."} < set(lines)
    for name in ("out.wav", "both.wav"):
        assert length_and_loudness(tmp_path / name)[1] > 300


@pytest.mark.skipif(sys.platform == "win32", reason="a program cannot press Ctrl-C for another one there")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_it_and_keep_the_recording(
    number: signal.Signals, status: int, bot: EmbeddedBot, one_word: Path, tmp_path: Path
) -> None:
    """During a conversation: no traceback, and the session is closed."""
    process = start(tmp_path, bot.ws_url, "--mic", one_word, "--speaker", "none", "--record", "both.wav")
    assert process.stdout is not None
    assert any(b"bot  You said: Hello my bot." in line for line in process.stdout)
    process.send_signal(number)
    shown, errors = process.communicate(timeout=GUARD)
    assert (process.returncode, errors) == (status, b"")
    assert b"The conversation is in " in shown
    assert length_and_loudness(tmp_path / "both.wav")[1] > 300


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1", "http://127.0.0.1:1/start"])
def test_an_unreachable_bot_is_two_lines(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 1, the address, and the word that explains it."""
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(["talk", url, "--mic", "none", "--speaker", "none"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"rtvi-sync talk: .*127\.0\.0\.1:1.*\n  See: rtvi-sync explain [a-z-]+\n", shown.err)


def test_on_a_pipe_no_device_is_looked_for(tmp_path: Path, bot: EmbeddedBot) -> None:
    """Lines are sent and answered, and nothing is printed about devices."""
    process = start(tmp_path, bot.ws_url)
    shown, errors = process.communicate(b"Are you there?\n", timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    assert shown.decode().splitlines() == [CONNECTED, "you  Are you there?", "bot  You said: Are you there?"]


def test_devices_that_are_missing_leave_a_conversation_in_text(tmp_path: Path, bot: EmbeddedBot) -> None:
    """Each missing device is one line of the conversation, and is not logged."""
    process = start(tmp_path, bot.ws_url, "--mic", "default", "--speaker", "default")
    shown, errors = process.communicate(b"Are you there?\n", timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    lines = shown.decode().splitlines()
    assert {"you  Are you there?", "bot  You said: Are you there?"} < set(lines)
    told = [line for line in lines if line.endswith("(the conversation continues)")]
    assert 1 <= len(told) == len(set(told)) <= 2


def test_closed_output_streams(tmp_path: Path) -> None:
    """Closed streams, as `>&-` has them, are no error."""
    words = ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command("ws://127.0.0.1:1")]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, timeout=GUARD)
    assert done.returncode == 1


def test_a_timeout_of_0_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line after the usage."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["talk", "ws://127.0.0.1:1", "--timeout", "0"])
    assert "'0' is not a positive number of seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--mic", "word.wav", "--record", "word.wav"), "--mic and --record"),
        (("--mic", "word.wav", "--speaker", "./word.wav"), "--mic and --speaker"),
        (("--mic", "word.wav", "--record", "link.wav"), "--mic and --record"),
        (("--speaker", "new.wav", "--record", "new.wav"), "--speaker and --record"),
    ],
)
def test_one_file_for_two_options_is_refused(
    options: tuple[str, ...],
    told: str,
    one_word: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One file for two options is refused before a bot is asked, and is not overwritten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", None)
    Path("link.wav").symlink_to(one_word)
    before = one_word.read_bytes()
    assert cli.main(["talk", "ws://127.0.0.1:1", *options]) == 1
    assert re.fullmatch(f"rtvi-sync talk: {told} are the same file, .*\n", capsys.readouterr().err)
    assert one_word.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes of this kind")
def test_the_microphone_may_be_a_pipe(bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
    """The microphone may be a pipe, as `--mic <(...)` of a shell makes it: below /dev, without a file's ending."""
    reading, writing = os.pipe()
    os.write(writing, one_word.read_bytes())
    os.close(writing)
    words = command(bot.ws_url, "--mic", f"/dev/fd/{reading}", "--speaker", "none")
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment(),
        pass_fds=[reading],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GUARD,
    )
    os.close(reading)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [CONNECTED, "you  Hello my bot.", "bot  You said: Hello my bot."]


def test_the_token_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Other users of the machine cannot read it there."""
    with EmbeddedBot() as bot:
        monkeypatch.setenv("RTVI_TOKEN", "abc")
        process = start(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none")
        session = bot.wait_for_session(GUARD)
        assert session.path.endswith("?token=abc")
        session.wait_for_message("client-ready", GUARD)
        session.close(1000)
        shown, errors = process.communicate(timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    assert shown.endswith(b"The bot ended the session (code 1000)\n")
