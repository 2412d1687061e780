"""`rtvi-sync talk` as a user starts it: on pipes, and on a terminal."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync import cli
from rtvi_sync.media.pcm import rms
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]
CONNECTED = "connected to rtvi_sync.testing 0.1.0, RTVI version 2.2.0"


@pytest.fixture(scope="module")
def bot() -> Iterator[EmbeddedBot]:
    """Start a bot for all of these tests."""
    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2) as bot:
        yield bot


def command(*arguments: object) -> list[str]:
    """Return the words of the command line."""
    return [sys.executable, "-W", "error", "-m", "rtvi_sync", "talk", *map(str, arguments)]


def environment() -> dict[str, str]:
    """Return the environment variables of the command."""
    # This terminal does not answer queries of the cursor position.
    more = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    return {**os.environ, **more}


def start(folder: Path, *arguments: object) -> subprocess.Popen[bytes]:
    """Start the command on pipes."""
    return subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def length_and_loudness(path: Path) -> tuple[float, float]:
    """Return the seconds of a WAV file, and its level."""
    with wave.open(str(path)) as file:
        return file.getnframes() / file.getframerate(), rms(file.readframes(file.getnframes()))


def test_files_and_pipes_are_enough(bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
    """As over ssh: a WAV file is played, the answer is written to another one, lines are sent and answered."""
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
def test_an_unreachable_bot_is_one_line(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 1, and the address."""
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(["talk", url, "--mic", "none", "--speaker", "none"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"rtvi-sync talk: .*127\.0\.0\.1:1.*\n", shown.err)


def test_without_devices_it_is_a_conversation_in_text(tmp_path: Path, bot: EmbeddedBot) -> None:
    """Each missing device is one line of the conversation, and is not logged."""
    process = start(tmp_path, bot.ws_url)
    shown, errors = process.communicate(b"Are you there?\n", timeout=GUARD)
    assert (process.returncode, errors) == (0, b"")
    lines = shown.decode().splitlines()
    assert {"you  Are you there?", "bot  You said: Are you there?"} < set(lines)
    told = [line for line in lines if line.endswith("(the conversation continues)")]
    assert 1 <= len(told) == len(set(told)) <= 2


class Terminal:
    """A process on a pseudo-terminal whose output is recorded. A context manager."""

    def __init__(self, folder: Path, *arguments: object, columns: int = 80) -> None:
        import fcntl
        import struct
        import termios

        self._keyboard, self._screen = os.openpty()
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.before = self.settings()
        self.shown = ""
        self._seen = 0
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=folder,
            env=environment(),
            stdin=self._screen,
            stdout=self._screen,
            stderr=self._screen,
        )

    def settings(self) -> list[object]:
        """Return the terminal's settings: echo and the like."""
        import termios

        return list(termios.tcgetattr(self._screen))

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._keyboard, keys.encode())

    def until(self, text: str) -> None:
        """Wait until a text is shown, after the one that was waited for before."""
        end = time.monotonic() + 20
        while (found := self.shown.find(text, self._seen)) < 0:
            self._read(end)
        self._seen = found + len(text)

    def finish(self) -> int:
        """Wait for the end of the process, and return its exit status."""
        end = time.monotonic() + 20
        while self.process.poll() is None or select.select([self._keyboard], [], [], 0)[0]:
            self._read(end, 0.05)
        return self.process.returncode

    def _read(self, end: float, patience: float = 1.0) -> None:
        if select.select([self._keyboard], [], [], patience)[0]:
            # Sequences that move the cursor and set colours are removed; the process only overwrites its own text.
            self.shown += re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[=>])", "", os.read(self._keyboard, 65536).decode())
        assert time.monotonic() < end, f"the text has not come: {self.shown!r}"

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._keyboard)
        os.close(self._screen)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals there")
class TestOnATerminal:
    """The command on a pseudo-terminal."""

    def test_typing_muting_and_ctrl_c(self, bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
        """Keys and meters are shown, lines are sent; Ctrl-C restores the terminal, with status 130."""
        with Terminal(tmp_path, bot.ws_url, "--mic", one_word, "--speaker", "out.wav") as terminal:
            terminal.until("You said: Hello my bot.")
            terminal.until("> talk, or type here and press Enter")
            terminal.until("Tab mute   F2 mic: word.wav   F3 speaker: out.wav   Ctrl-C leave")
            assert terminal.settings() != terminal.before
            terminal.type("How are you?\r")
            terminal.until("You said: How are you?")
            terminal.type("\t")
            terminal.until("MUTED")
            terminal.type("not sent\x03")
            assert terminal.finish() == 130
            assert "Traceback" not in terminal.shown
            assert terminal.settings() == terminal.before

    def test_a_narrow_terminal(self, bot: EmbeddedBot, tmp_path: Path) -> None:
        """All keys and the time are shown."""
        with Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none", columns=40) as terminal:
            terminal.until("Tab mute  F2 mic  F3 speaker  ^C leave")
            terminal.until("0:0")
            terminal.type("\x04")
            assert terminal.finish() == 0

    def test_what_is_long_or_pasted(self, tmp_path: Path) -> None:
        """Pasted lines become one; the prompt is back after a line that was wider than the terminal."""
        with (
            EmbeddedBot() as bot,
            Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none") as terminal,
        ):
            terminal.until(CONNECTED)
            terminal.type("\x1b[200~one\ntwo\x1b[201~\r")
            heard = bot.wait_for_session().wait_for_message("send-text", timeout=GUARD)
            assert heard["data"]["content"] == "one two"
            terminal.until("You said: one two")
            terminal.type("x" * 100)
            terminal.until("xxx")  # it has been shown, and scrolled
            terminal.type("\r")
            terminal.until("bot  You said:")
            terminal.until("> talk, or type here")
            terminal.type("\x04")
            assert terminal.finish() == 0

    def test_ctrl_d_on_an_empty_line_is_a_good_end(self, bot: EmbeddedBot, tmp_path: Path) -> None:
        """Status 0; on a line with text it deletes a character."""
        with Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none") as terminal:
            terminal.until(CONNECTED)
            terminal.type("xHi\x01\x04\r")
            terminal.until("You said: Hi")
            terminal.type("\x04")
            assert terminal.finish() == 0
            assert terminal.settings() == terminal.before

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_restores_the_terminal(self, number: int, bot: EmbeddedBot, tmp_path: Path) -> None:
        """Echo works again after SIGTERM and SIGHUP."""
        with Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none") as terminal:
            terminal.until(CONNECTED)
            terminal.process.send_signal(number)
            assert terminal.finish() == 128 + number
            assert terminal.settings() == terminal.before

    def test_errors_are_lines_above_the_input(self, one_word: Path, tmp_path: Path) -> None:
        """Hostile words and log warnings are lines; the end by the bot is one, too, with status 0."""
        with (
            EmbeddedBot(replies=["\x1b[2J\x1b]0;owned\x07two"]) as bot,
            Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none") as terminal,
        ):
            session = bot.wait_for_session(GUARD)
            session.wait_for_message("client-ready", GUARD)
            terminal.until(CONNECTED)
            session.send({"label": "rtvi-ai", "type": "bot-output", "data": {"text": 5, "\x1b[31m": "\x1b[31m"}})
            terminal.until("WARNING ")
            terminal.type("one\r")
            terminal.until("[2J]0;ownedtwo")
            session.close(1000, "enough")
            terminal.until("The bot ended the session (code 1000: enough)")
            assert terminal.finish() == 0

    def test_a_bot_that_cannot_be_reached_leaves_one_line(self, tmp_path: Path) -> None:
        """The terminal is restored."""
        with Terminal(tmp_path, "ws://127.0.0.1:1", "--mic", "none", "--speaker", "none") as terminal:
            assert terminal.finish() == 1
            assert terminal.shown.count("rtvi-sync talk: ws://127.0.0.1:1 cannot be reached") == 1
            assert terminal.settings() == terminal.before


def test_closed_output_streams(tmp_path: Path) -> None:
    """Closed streams, as `>&-` has them, are no error."""
    words = ["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command("ws://127.0.0.1:1")]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, timeout=GUARD)
    assert done.returncode == 1


def test_a_timeout_of_0_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line after the usage."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["talk", "ws://127.0.0.1:1", "--timeout", "0"])
    assert "nothing is ready within 0 s" in capsys.readouterr().err


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
