"""A type checker's message about a mistake is short enough to be read in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slowness import GUARD

ROOT = Path(__file__).parents[2]

MISTAKES = {
    'client.on("bot-redy", show)': "NameOfTheEvent",
    'client.once("bot-redy", lambda data: None)': "NameOfTheEvent",
    'client.on("bot-redy")(show)': "NameOfTheEvent",
    'client.off("bot-redy")': "NameOfAnEvent",
    'client.wait_for("bot-redy", timeout=5)': "NameOfTheEvent",
    'client.wait_for("bot-redy", lambda event: True)': "NameOfTheEvent",
    'client.events("bot-output", "bot-redy")': "NameOfTheEvent",
    'client.expect().event("bot-redy")': "NameOfAnEvent",
    'client.expect().absent("bot-redy", for_=1)': "NameOfAnEvent",
    'client.barge_in("Stop!", after="bot-redy")': "RTVIEvent",
    'client.on("bot-ready", of_a_transcript)': "HandlerOfTheEvent",
    'client.wait_for("bot-ready", 5)': "ConditionOnTheEvent",
    'client.wait_for("bot-ready", lambda event: event.data.nothing)': "ConditionOnTheEvent",
    'client.wait_for("bot-ready", timeout="5")': "Seconds",
    'client.events("bot-ready", timeout="5")': "Seconds",
    'client.on("bot-ready", lambda bot: show(bot.versoin))': "HandlerOfTheEvent",
    'client.on("bot-ready", None)': "NoneIsNoHandler",
    'client.on("bot-ready", callback=show)': "NoSuchArgument",
    'client.on("bot-ready", show, 5)': "NoSuchArgument",
    'client.on(name="bot-ready", handler=show)': "on",
    "client.on()": "on",
    'client.wait_for("bot-ready", timout=5)': "NoSuchArgument",
    'client.wait_for("bot-ready", None, 5, 5)': "NoSuchArgument",
    "client.wait_for(timeout=5)": "wait_for",
    "client.wait_for()": "wait_for",
    'client.events("bot-ready", timout=5)': "NoSuchArgument",
}

PROGRAM = """\
from rtvi_sync import RTVIClient, TranscriptData

def show(*values: object) -> None: ...
def of_a_transcript(data: TranscriptData) -> None: ...

client = RTVIClient()
"""


def test_mypy_is_brief(tmp_path: Path) -> None:
    """A misspelt event, or another wrong argument of these methods, gives one line or two, which name the right one."""
    pytest.importorskip("mypy", reason="`run.py lint` installs it")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "\n".join(MISTAKES))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(tmp_path)]
    run = subprocess.run([*command, str(program)], capture_output=True, text=True, timeout=4 * GUARD, cwd=ROOT)
    said = run.stdout.splitlines()
    for number, (mistake, expected) in enumerate(MISTAKES.items(), len(PROGRAM.splitlines()) + 1):
        lines = [line for line in said if line.startswith(f"{program}:{number}:")]
        assert 1 <= len(lines) <= 2, mistake
        assert f'"{expected}"' in lines[0] + lines[-1], mistake
        assert all(len(line.removeprefix(str(program))) < 160 for line in lines), mistake
