"""The talk command on a pseudo-terminal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from rtvi_sync.media.devices.echo_canceller import is_available
from rtvi_sync.testing import EmbeddedBot
from tests.support.processes import inherited
from tests.support.slowness import GUARD
from tests.support.talk_command import CONNECTED, Terminal

pytestmark = pytest.mark.inside


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

    @pytest.mark.parametrize(
        ("options", "line"),
        [([], "Echo cancellation is on"), (["--no-echo-cancellation"], "Use a headset, or the bot hears itself")],
    )
    def test_the_echo_of_devices(self, bot: EmbeddedBot, tmp_path: Path, options: list[str], line: str) -> None:
        """The echo of devices is cancelled unless an option turns that off, and one line says so."""
        if not is_available():
            pytest.skip("the extra aec is not installed")
        with Terminal(tmp_path, bot.ws_url, *options) as terminal:
            terminal.until(line)
            terminal.until(CONNECTED)
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
        with (
            inherited(number, signal.SIG_DFL),
            Terminal(tmp_path, bot.ws_url, "--mic", "none", "--speaker", "none") as terminal,
        ):
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
            terminal.until("[2J ]0;owned two")
            session.close(1000, "enough")
            terminal.until("The bot ended the session (code 1000: enough)")
            assert terminal.finish() == 0

    def test_a_bot_that_cannot_be_reached_leaves_one_line(self, tmp_path: Path) -> None:
        """The terminal is restored."""
        with Terminal(tmp_path, "ws://127.0.0.1:1", "--mic", "none", "--speaker", "none") as terminal:
            assert terminal.finish() == 1
            assert terminal.shown.count("rtvi-sync talk: ws://127.0.0.1:1 cannot be reached") == 1
            assert terminal.settings() == terminal.before
