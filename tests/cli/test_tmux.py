"""`rtvi-sync talk` in a real terminal emulator, tmux, with a Pipecat bot."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipecat.conftest import BotServer, _launcher, pipecat_talk, shared_bots  # noqa: F401
from tests.support.required import missing
from tests.support.slowness import GUARD
from tests.support.talk_command import ROOT
from tests.support.wire import SHIPPED

pytestmark = pytest.mark.real

FIRST_TURN = """\
connected to pipecat-ai 1.14.0, RTVI version 2.2.0
you  hello bot
bot  You said: hello bot.
     voice to voice 0.32 s

> talk, or type here and press Enter
 you ██████··········   bot ················   0:05  listening
 Tab mute   F2 mic: default   F3 speaker: default   Ctrl-C leave
"""


class Tmux:
    """A terminal of 90 columns and 24 rows with a shell in it."""

    def __init__(self, directory: Path, folder: Path) -> None:
        self._socket = str(directory / "tmux")
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "PS1": "$ ", "ENV": "", "TERM": "xterm-256color"}
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", "90", "-y", "24", "-c", str(folder), "sh")

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=GUARD,
        ).stdout

    def type(self, text: str) -> None:
        """Type text."""
        self._tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Press a key, by its name in tmux."""
        self._tmux("send-keys", key)

    def screen(self) -> list[str]:
        """Return the visible lines, without blank lines at the end."""
        return self._tmux("capture-pane", "-p").rstrip().splitlines()

    def until(self, seen: Callable[[list[str]], object], what: str) -> list[str]:
        """Wait until `seen(lines)` is true."""
        end = time.monotonic() + 30
        while not seen(lines := self.screen()):
            assert time.monotonic() < end, f"{what}:\n" + "\n".join(lines)
            time.sleep(0.05)
        return lines

    def until_line(self, pattern: str) -> list[str]:
        """Wait until one line matches a pattern."""
        return self.until(lambda lines: any(re.fullmatch(pattern, line) for line in lines), pattern)

    def close(self) -> None:
        """End the terminal and the processes in it."""
        self._tmux("kill-server")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """Start a terminal in the test's folder."""
    if shutil.which("tmux") is None:
        missing("tmux is not installed: apt-get install tmux")
    with tempfile.TemporaryDirectory(prefix="rtvi-") as directory:  # a short path, for the socket
        terminal = Tmux(Path(directory), tmp_path)
        yield terminal
        terminal.close()


def unchanging(screen: list[str]) -> list[str]:
    """Return a screen without levels, times, devices, the bot's activity, and blank lines."""
    changing = r"[█·]|\d:\d\d|\d\.\d\d(?= s$)|(?<=(?:mic|ker): )\S+|  (?:listening|thinking|speaking)$"
    return [re.sub(changing, "", line) for line in screen if line]


def test_a_conversation_from_the_first_key_to_the_last(pipecat_talk: BotServer, tmux: Tmux, tmp_path: Path) -> None:  # noqa: F811
    """The transcript scrolls above the input line; meters move; keys mute and end; the shell works afterwards."""
    options = ["--mic", str(SHIPPED), "--speaker", "out.wav", "--record", "both.wav"]
    command = [sys.executable, "-W", "error", "-m", "rtvi_sync", "talk", pipecat_talk.base_url, *options]
    tmux.type("clear; " + shlex.join(command))
    tmux.press("Enter")
    lines = tmux.until(lambda lines: unchanging(lines) == unchanging(FIRST_TURN.splitlines()), "not the first turn")
    assert lines[0] == "connected to pipecat-ai 1.14.0, RTVI version 2.2.0"
    assert lines[1:3] == ["you  hello bot", "bot  You said: hello bot."]
    assert re.fullmatch(r" you [█·]{16}   bot [█·]{16}   \d:\d\d  (?:listening|thinking|speaking)", lines[-2])
    assert lines[-1] == " Tab mute   F2 mic: speech.wav   F3 speaker: out.wav   Ctrl-C leave"
    tmux.until_line(r" you .*   bot █.*")

    tmux.press("Tab")
    tmux.until_line(" you      MUTED         bot .*")
    tmux.type("what can you do?")
    tmux.until_line(r"> what can you do\?")
    tmux.press("Enter")
    tmux.until_line(r"you  what can you do\?")
    tmux.until_line("bot  You said: what can you do.*")

    tmux.type("never sent")
    tmux.press("C-c")
    tmux.until_line("The conversation is in .*")
    tmux.type("echo status=$?; stty -a")
    tmux.press("Enter")
    tmux.until_line(".*status=130")
    lines = tmux.until(lambda lines: any("icanon" in line for line in lines), "stty")
    assert {"icanon", "echo", "isig"} <= {word for line in lines for word in line.split()}
    assert not any("never sent" in line or " Tab mute" in line for line in lines)
    for name in ("out.wav", "both.wav"):
        assert (tmp_path / name).stat().st_size > 10_000
