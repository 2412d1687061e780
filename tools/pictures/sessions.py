"""The programs that the pictures of terminals show."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rtvi_sync.cli.scripted_speech import load_script
from rtvi_sync.testing import EmbeddedBot
from tests.support.wavs import silence, write_wav

from .terminal import ROOT, Terminal

_COLUMNS, _WIDE = 72, 94
SPEECH: Final = load_script(ROOT / "rtvi_sync" / "cli" / "speech.wav")
TRANSCRIPTS: Final = list(SPEECH.words)
_BEFORE, _BETWEEN, _AFTER = 0.5, 6.0, 30.0  # seconds of silence
_FAILING_TEST: Final = """\
import pytest
from rtvi_sync.testing import Reply

WEATHER = Reply("It rains in Bergen.", call=("get_weather", {"city": "Bergen"}), result={"sky": "grey"})


pytestmark = pytest.mark.rtvi(replies={"Oslo": WEATHER, "bye": "See you."})


def test_goodbye(rtvi_client):
    rtvi_client.ask("Good bye!").expect(contains="See you")


def test_city(rtvi_client):
    turn = rtvi_client.ask("What is the weather in Oslo?")
    turn.expect(calls={"get_weather": {"city": "Oslo"}})
"""


def write_speech(path: Path, count: int, after: float = _AFTER) -> Path:
    """Write a file with the first spoken questions, long pauses between them, and seconds of silence after them."""
    rate = SPEECH.sample_rate_hz
    parts = [silence(_BEFORE, rate), SPEECH.utterances[0]]
    for utterance in SPEECH.utterances[1:count]:
        parts += [silence(_BETWEEN, rate), utterance]
    return write_wav(path, [*parts, silence(after, rate)], rate)


def talk(folder: Path) -> str:
    """Draw `talk` while the bot answers the second spoken question."""
    write_speech(folder / "voice.wav", 2)
    replies = {"hear me": "Loud and clear.", "repeat": "Then please repeat every word that I say."}
    options = ["--mic", "voice.wav", "--speaker", "answer.wav"]
    with (
        EmbeddedBot(transcripts=TRANSCRIPTS, replies=replies) as bot,
        Terminal([sys.executable, "-m", "rtvi_sync", "talk", bot.base_url, *options], _COLUMNS, 14, folder) as terminal,
    ):
        terminal.until(lambda lines: _is_answering("bot  Then please repeat", lines))
        return terminal.svg("rtvi-sync talk http://localhost:7860")


def _is_answering(answer: str, lines: list[str]) -> bool:
    """Return whether the bot's answer is on the screen, and its level is high."""
    return any(line.startswith(answer) for line in lines) and any("bot ████" in line for line in lines)


def demo(folder: Path) -> str:
    """Draw the demo, after its end."""
    with Terminal([sys.executable, "-m", "rtvi_sync", "demo"], _COLUMNS, 40, folder) as terminal:
        terminal.finish()
        return terminal.svg("rtvi-sync demo")


def failing_test(folder: Path) -> str:
    """Draw what pytest says of two tests, one of which fails."""
    (folder / "test_bot.py").write_text(_FAILING_TEST, "utf-8")
    plugins = ["-p", "rtvi_sync.testing.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "--color=yes", "-q", "--tb=short", "-rN"]
    with Terminal(command, _WIDE, 60, folder) as terminal:
        terminal.finish()
        return terminal.svg("pytest")


#: The terminals, by the names of their pictures.
DRAWN: Final = {"talk.svg": talk, "demo.svg": demo, "pytest.svg": failing_test}
