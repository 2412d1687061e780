"""The commands as `pip install rtvi_sync` brings them: no extra is needed, and one that is wanted is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.installed import EXTRAS, MODULES, without
from tests.support.selection import some_of
from tests.support.slowness import GUARD
from tests.support.talk_command import CONNECTED, Terminal
from tests.support.wavs import compressed_wav

MODULE = (sys.executable, "-W", "error", "-m", "rtvi_sync")

SEE = r" *See: rtvi-sync explain missing-extra\n"
#: Arguments, exit status, and patterns of stdout and stderr.
COMMANDS: dict[str, tuple[list[str], int, str, str]] = {
    "none": ([], 0, r"usage: rtvi-sync .*demo .*talk .*devices .*", ""),
    "help": (["--help"], 0, r"usage: rtvi-sync .*demo .*talk .*devices .*", ""),
    "demo --help": (["demo", "--help"], 0, r"usage: rtvi-sync demo .*", ""),
    "talk --help": (["talk", "--help"], 0, r"usage: rtvi-sync talk .*", ""),
    "devices --help": (["devices", "--help"], 0, r"usage: rtvi-sync devices .*", ""),
    "demo": (["demo", "--speech", "SPEECH"], 0, r".*connected to .*bot  You said: Hello\..*conversation\.wav .*", ""),
    "talk": (["talk", "URL"], 0, rf"{re.escape(CONNECTED)}\nyou  hello\nbot  You said: hello\n", ""),
    "talk, recorded": (["talk", "URL", "--record", "both.wav"], 0, r".*bot  You said: hello\n.*both\.wav .*", ""),
    "talk by a device": (
        ["talk", "URL", "--mic", "x"],
        1,
        "",
        rf"rtvi-sync talk: [^\n]*\[(?:audio|sounddevice)\][^\n]*\n{SEE}",
    ),
    "talk from a µ-law file": (["talk", "URL", "--mic", "MU_LAW"], 0, rf"{re.escape(CONNECTED)}\n.*", ""),
    "talk from an ADPCM file": (
        ["talk", "URL", "--mic", "ADPCM"],
        1,
        "",
        rf"rtvi-sync talk: [^\n]* of ADPCM\. [^\n]*\[files\][^\n]*\n{SEE}",
    ),
    "devices": (
        ["devices"],
        1,
        r"Cameras: [^\n]*\[video\][^\n]*\n\n",
        rf"rtvi-sync devices: [^\n]*\[(?:audio|sounddevice)\][^\n]*\n{SEE}",
    ),
    "mcp": (["mcp"], 1, "", r"rtvi-sync mcp: [^\n]*\[mcp\][^\n]*\n"),
    "devices --levels": (
        ["devices", "--levels", "1"],
        1,
        "",
        r"rtvi-sync devices: [^\n]*\[(?:audio|sounddevice)\][^\n]*\n",
    ),
}


def run(
    command: tuple[str, ...], folder: Path, environment: Mapping[str, str], *, url: str, speech: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder of its own, with a line on a pipe."""
    values = {"URL": url, "SPEECH": str(speech)}
    for name, kind in (("MU_LAW", 7), ("ADPCM", 2)):
        (folder / f"{name}.wav").write_bytes(compressed_wav(kind, b"\xff" * 800))
        values[name] = str(folder / f"{name}.wav")
    words = [values.get(word, word) for word in command]
    return subprocess.run(
        words, cwd=folder, env=environment, input="hello\n", capture_output=True, text=True, timeout=GUARD
    )


EACH_TIME = ("demo", "talk, recorded", "talk by a device", "talk from an ADPCM file", "devices")


@pytest.mark.parametrize("name", some_of(COMMANDS, *EACH_TIME))
def test_commands_work_without_any_extra(name: str, bot: EmbeddedBot, one_word: Path, tmp_path: Path) -> None:
    """Commands that need no extra work and mention none; the others print a line with the command to install it."""
    environment = without(tmp_path / "hidden", *MODULES)
    arguments, status, shown, errors = COMMANDS[name]
    done = run((*MODULE, *arguments), tmp_path, environment, url=bot.ws_url, speech=one_word)
    assert done.returncode == status, done.stderr
    assert re.fullmatch(shown, done.stdout, re.DOTALL)
    assert re.fullmatch(errors, done.stderr, re.DOTALL)


@pytest.mark.matrix
@pytest.mark.parametrize("extra", EXTRAS)
def test_lines_on_a_pipe_need_none_of_the_extras(extra: str, bot: EmbeddedBot, tmp_path: Path) -> None:
    """Whichever is missing beside the others, the conversation is the same."""
    environment = without(tmp_path / "hidden", *EXTRAS[extra])
    done = run((*MODULE, "talk", "URL"), tmp_path, environment, url=bot.ws_url, speech=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{CONNECTED}\nyou  hello\nbot  You said: hello\n"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo terminal there")
def test_a_terminal_without_extras_is_told_what_they_bring(bot: EmbeddedBot, tmp_path: Path) -> None:
    """One line names the extra for meters and keys, and one the extra for devices; typed text is answered."""
    path = without(tmp_path / "hidden", *MODULES)["PYTHONPATH"]
    with Terminal(tmp_path, bot.ws_url, PYTHONPATH=path) as terminal:
        terminal.until("For meters and keys: ")
        terminal.until('[cli]"')
        terminal.until(CONNECTED)
        terminal.until('[sounddevice]"')
        terminal.until("(the conversation continues)")
        terminal.type("hello\n")
        terminal.until("bot  You said: hello")
        terminal.type("\x04")
        assert terminal.finish() == 0
    assert terminal.shown.count("[sounddevice]") == 1
    assert "Traceback" not in terminal.shown


@pytest.fixture
def program(installed: Path) -> str:
    """Return the program `rtvi-sync` of a bare environment."""
    return str(installed / "rtvi-sync")


@pytest.mark.real
@pytest.mark.parametrize("name", some_of(COMMANDS, "talk, recorded", "devices"))
def test_the_wheel_alone_brings_the_commands(
    name: str, program: str, bot: EmbeddedBot, one_word: Path, tmp_path: Path
) -> None:
    """The installed wheel alone brings the commands, in an empty folder and without the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    arguments, status, shown, errors = COMMANDS[name]
    done = run((program, *arguments), tmp_path, environment, url=bot.ws_url, speech=one_word)
    assert done.returncode == status, done.stderr
    assert re.fullmatch(shown, done.stdout, re.DOTALL)
    assert re.fullmatch(errors, done.stderr, re.DOTALL)


@pytest.mark.real
def test_the_demo_of_the_wheel_has_its_own_speech(program: str, tmp_path: Path) -> None:
    """`rtvi-sync demo` without arguments needs no file of the user's."""
    done = subprocess.run([program, "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "conversation.wav").stat().st_size > 100_000
