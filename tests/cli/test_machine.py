"""The commands with microphones and speakers: PulseAudio's, without hardware."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.audio.conftest import _pulse_parts, pulse  # noqa: F401
from tests.audio.pulse import RATE, PulseServer, Samples
from tests.support.slowness import GUARD
from tests.support.talk_command import CONNECTED, Terminal, environment
from tests.support.waiting import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(sys.platform == "win32", reason="there is neither PulseAudio nor a pseudo terminal there"),
    pytest.mark.inside,
]


def tone(seconds: float) -> Samples:
    """Return a tone at -13 dBFS."""
    return (10_000 * np.sin(np.arange(int(seconds * RATE)) * 2 * np.pi * 440 / RATE)).astype(np.int16)


def devices(folder: Path, *arguments: str) -> Any:
    """Return the document of `rtvi-sync devices --json`."""
    command = [sys.executable, "-W", "error", "-m", "rtvi_sync", "devices", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=GUARD)
    return json.loads(done.stdout)


def test_devices_are_listed_with_the_default(pulse: PulseServer, tmp_path: Path) -> None:  # noqa: F811
    """The ids are those that the options take."""
    document = devices(tmp_path)
    for kind, names in (("microphones", ("mic_a", "mic_b")), ("speakers", ("speaker_a", "speaker_b"))):
        listed = {device["device_id"]: device for device in document[kind]}
        assert {f"ALSA/{name}" for name in names} < set(listed)
        assert [id_ for id_, device in listed.items() if device["is_default"]] == ["ALSA/default"]


def test_levels_tell_which_microphone_hears(pulse: PulseServer, tmp_path: Path) -> None:  # noqa: F811
    """All are open at the same time: one receives the tone, with the right level; another is silent."""
    pulse.play(tone(10), feed="mic_b_feed")
    levels = {mic["label"]: mic["loudest_dbfs"] for mic in devices(tmp_path, "--levels", "1")["microphones"]}
    assert levels["mic_b"] == pytest.approx(-13.3, abs=1)
    assert levels["mic_a"] == -100


def test_a_conversation_by_microphone_and_speaker(pulse: PulseServer, tmp_path: Path) -> None:  # noqa: F811
    """Speech at the microphone is answered by the speaker; keys change both devices, and mute the microphone."""
    with (
        EmbeddedBot(transcripts=["Hello my bot."], hangover=0.3) as bot,
        Terminal(tmp_path, bot.ws_url, "--mic", "mic_a", "--speaker", "SPEAKER_A") as terminal,
    ):
        terminal.until(CONNECTED)
        until(lambda: pulse.source_outputs() == ["mic_a"], "the microphone was not opened")
        with pulse.record("speaker_a.monitor") as recording:
            pulse.play(tone(0.6))
            terminal.until("You said: Hello my bot.")
            recording.wait_for(lambda samples: np.abs(samples).max() > 300, "the bot is not audible")
        terminal.type("\x1bOQ\x1bOR")  # F2, F3
        until(lambda: pulse.source_outputs() == ["mic_b"], "the microphone was not changed")
        until(lambda: pulse.sink_inputs() == ["speaker_b"], "the speaker was not changed")
        terminal.type("\t")
        until(lambda: pulse.source_outputs() == [], "the microphone is still open")
        terminal.type("\x03")
        assert terminal.finish() == 130
        assert terminal.settings() == terminal.before
