"""The backend with the real libraries on the devices of a PulseAudio daemon, each test in a process that may crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.slowness import GUARD
from tests.support.waiting import until

from .pulse import RATE, PulseServer, Samples


class Program:
    """A part of `streams.py` that runs."""

    def __init__(self, *part: str, env: dict[str, str]) -> None:
        # As users do, without -W error: PyAudio's own warnings are theirs.
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.audio.streams", *part]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )

    def told(self) -> dict[str, Any]:
        """Return the program's next report."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=GUARD)
            pytest.fail(f"it ended with {self.process.returncode}\n{errors}")
        told: dict[str, Any] = json.loads(line)
        return told

    def go_on(self) -> None:
        """Tell the program that the test has done its part."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Wait until the program ends without error; return its standard error."""
        _, errors = self.process.communicate("\n", timeout=GUARD)
        assert self.process.returncode == 0, errors
        return errors


Run = Callable[..., Program]


@pytest.fixture
def run(pulse: PulseServer, library: str) -> Iterator[Run]:
    """Start a part of `streams.py`."""
    programs: list[Program] = []

    def start(*part: str) -> Program:
        programs.append(Program(library, *part, env={**os.environ, **pulse.environment}))
        return programs[-1]

    yield start
    for program in programs:
        with program.process:
            program.process.kill()


def near(heard: Samples, value: int) -> float:
    """Return some seconds of a constant value."""
    return float((abs(heard.astype(int) - value) < value // 8).sum() / RATE)


@pytest.mark.parametrize("rounds", ["10", pytest.param("200", marks=pytest.mark.matrix)])
def test_many_cycles(run: Run, rounds: str) -> None:
    """Opened, switched and closed under load: no crash, no thread and no descriptor more, and not a word."""
    program = run("cycles", rounds)
    assert program.told() == {"threads": 0, "descriptors": 0, "begun": 0}
    assert program.end() == ""


def test_portaudio_on_many_threads(run: Run) -> None:
    """Eight threads may start and stop PortAudio at once, for lists and for streams."""
    program = run("many")
    assert program.told() == {"failures": []}
    assert program.end() == ""


def test_a_sink_is_unloaded_under_a_running_stream(run: Run, pulse: PulseServer) -> None:
    """PulseAudio moves the streams: sound goes on, without an error."""
    program = run("running")
    program.told()
    pulse.unload("speaker_a")
    pulse.unload("mic_a")
    program.go_on()
    assert program.told() == {"errors": ["NoneType", "NoneType"]}
    program.end()


def test_the_server_is_killed(run: Run, pulse: PulseServer) -> None:
    """If the server is killed, old and new streams fail in time and no device is listed; a new server repairs all."""
    program = run("killed")
    program.told()
    pulse.kill()
    program.go_on()
    assert program.told() == {"errors": ["not-found", "not-found"], "gone": ["not-found", "not-found"], "devices": 0}
    pulse.start()
    program.go_on()
    back = program.told()
    assert back["back"]
    assert back["devices"] > 0
    program.end()


@pytest.mark.timeout(120)
def test_the_server_is_stopped(run: Run, pulse: PulseServer) -> None:
    """If the server answers nothing, a list fails in time; when the server goes on, the streams go on, too."""
    program = run("stopped")
    program.told()
    pulse.stop()
    program.go_on()
    told = program.told()
    assert told["listed"] == "unknown"
    assert told["took"] < 5
    pulse.go_on()
    program.go_on()
    told = program.told()
    assert told["errors"] == [True, True]
    assert told["devices"] > 0
    program.end()


def test_the_server_is_stopped_from_the_beginning(run: Run, pulse: PulseServer) -> None:
    """PortAudio hangs in another process, which ends; in this one it starts when the server goes on."""
    pulse.stop()
    program = run("stopped_before")
    told = program.told()
    assert "does not answer" in told["error"]
    assert told["took"] < 5
    assert told["begun"] == 0
    pulse.go_on()
    program.go_on()
    assert program.told() == {"back": True}
    assert program.end() == ""


def test_a_new_device_while_streams_run(run: Run, pulse: PulseServer) -> None:
    """The device is opened by its id; the other streams are reopened and continue, with a gap shorter than a word."""
    program = run("restarted")
    program.told()
    pulse.load_mic("mic_c")
    program.go_on()
    told = program.told()
    assert told["errors"] == [True, True, True]
    assert max(told["gaps"]) < 0.6  # 0.1 where nothing else runs
    assert told["begun"] == 0
    assert program.end() == ""


def test_underruns_are_silent(run: Run) -> None:
    """ALSA says nothing on standard error when a speaker is given nothing or a microphone is not read."""
    program = run("underrun")
    assert program.told()["backlog"] > 0.03
    assert program.end() == ""


def test_what_is_dropped_is_not_heard(run: Run, pulse: PulseServer) -> None:
    """Of ten loud pieces of 120 ms that are dropped at once little is heard; of the quiet second after them, all."""
    with pulse.record("speaker_a.monitor") as recording:
        program = run("dropped")
        program.told()
        heard = recording.wait_for(lambda heard: near(heard, 0x1000) > 0.8, "the end was not heard")
    program.end()
    assert near(heard, 0x7000) < 0.6


def test_the_program_ends_with_open_streams(run: Run, pulse: PulseServer) -> None:
    """If other threads are still in PortAudio, the process does not crash, and the server has no client left."""
    program = run("abandoned")
    program.told()
    assert program.end() == ""
    until(lambda: not pulse.sink_inputs() and not pulse.source_outputs(), "streams are left")


def test_a_fork_with_open_streams(run: Run) -> None:
    """The child ends with all of Python's clean-up; the parent's streams do not notice."""
    program = run("forked")
    assert program.told() == {"child": 0, "errors": [True, True]}
    program.end()


def test_a_machine_without_devices(library: str) -> None:
    """Every call says so, and standard error stays empty."""
    program = Program(library, "nothing", env=dict(os.environ))
    with program.process:
        assert program.told() == {"devices": [], "errors": ["not-found", "not-found"]}
        assert program.end() == ""
