"""Sinks get all speech of the bot at any speed of arrival, and files keep it however the process ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync import RTVIClient
from rtvi_sync.media import AudioSink, CallbackSink, WavSink
from tests.support.processes import python, run_python
from tests.support.selection import some_of
from tests.support.slowness import GUARD

from .conftest import BY_TRANSPORT, BotProcess, client_of
from .flooding_bot import FRAME_SECONDS, RATE_HZ, speech


class OwnSink:
    """A sink of the application."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        assert sample_rate_hz == RATE_HZ
        self.frames.append(pcm)

    def drop(self) -> None:
        self.frames.append(b"dropped")

    def close(self) -> None:
        """Keep the audio received so far."""


def audio_of(path: Path) -> bytes:
    """Return the audio of a file, as a reader with the standard library sees it."""
    with wave.open(str(path)) as reader:
        assert (reader.getnchannels(), reader.getsampwidth(), reader.getframerate()) == (1, 2, RATE_HZ)
        return reader.readframes(reader.getnframes())


@contextlib.contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Yield processes that take all the time they get."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(GUARD)


def recite(client: RTVIClient, seconds: float, speed: float | None) -> None:
    """Have the bot speak; returns when all of it has arrived."""
    client.send_client_message("recite", {"seconds": seconds, "speed": speed})
    client.send_client_request("recited", timeout=GUARD)


def hear(bot: BotProcess, tmp_path: Path, seconds: float, speed: float | None) -> None:
    """Let each kind of sink hear the bot, one after the other; each gets every byte, once, in order."""
    own, called, path = OwnSink(), OwnSink(), tmp_path / "a.wav"
    sinks: list[AudioSink] = [WavSink(path), CallbackSink(called.write, on_drop=called.drop), own]
    for sink in sinks:
        client = client_of(bot, speaker=sink)
        with client:
            recite(client, seconds, speed)
        assert client.stats().speaker_dropped_seconds == 0
    said = speech(seconds)
    assert audio_of(path) == said
    assert b"".join(called.frames) == said
    assert b"".join(own.frames) == said


@BY_TRANSPORT
@pytest.mark.parametrize(
    ("speed", "seconds"), some_of([(2, 1.0), (3, 1.5), (10, 6.0), (None, 60.0)], (3, 1.5), (None, 60.0))
)
def test_audio_faster_than_speech(bot: BotProcess, tmp_path: Path, speed: float | None, seconds: float) -> None:
    """Audio at two, three and ten times the pace of speech, and a minute at once, is kept whole, bit exact."""
    hear(bot, tmp_path, seconds, speed)


class SlowSink(OwnSink):
    """A sink of the application that takes 5 ms for each audio frame, and says when it has all that it is to get."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._left = round(seconds / FRAME_SECONDS)
        self.done = threading.Event()

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        time.sleep(0.005)
        super().write(pcm, sample_rate_hz)
        self._left -= 1
        if not self._left:
            self.done.set()


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.matrix)])
def test_a_slow_sink_gets_what_came_at_once(bot: BotProcess, seconds: float) -> None:
    """A sink at a quarter of the bot's pace, much slower than the audio arrives, gets all of it, bit exact."""
    sink = SlowSink(seconds)
    client = client_of(bot, speaker=sink)
    with client:
        recite(client, seconds, None)
        assert sink.done.wait(GUARD)
    assert client.stats().speaker_dropped_seconds == 0
    assert b"".join(sink.frames) == speech(seconds)


class GatedSink(OwnSink):
    """A sink of the application that accepts nothing before the test opens it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        assert self.gate.wait(GUARD)
        super().write(pcm, sample_rate_hz)


class GatedRecorder(WavSink):
    """A file that accepts nothing before the test opens it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = threading.Event()

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        assert self.gate.wait(GUARD)
        super().write(pcm, sample_rate_hz)


@pytest.mark.parametrize("kind", some_of(["own", "callback", "wav"], "wav"))
def test_the_memory_of_a_minute_at_once(bot: BotProcess, tmp_path: Path, kind: str) -> None:
    """A sink that is blocked until a minute has arrived costs the bytes of that audio, and little more."""
    said = speech(60.0)
    own, recorder = GatedSink(), GatedRecorder(tmp_path / "a.wav")
    sinks: dict[str, AudioSink] = {
        "own": own,
        "callback": CallbackSink(own.write, on_drop=own.drop),
        "wav": recorder,
    }
    tracemalloc.start()
    try:
        with client_of(bot, speaker=sinks[kind]) as client:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            recite(client, 60.0, None)
            own.gate.set()
            recorder.gate.set()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (audio_of(recorder.path) if kind == "wav" else b"".join(own.frames)) == said
    assert len(said) < peak - before <= 1.3 * len(said) + (1 << 20)


@pytest.mark.matrix
@pytest.mark.parametrize(("speed", "seconds"), some_of([(2, 10.0), (3, 15.0), (10, 30.0), (None, 60.0)], (3, 15.0)))
def test_audio_faster_than_speech_on_a_busy_machine(
    bot: BotProcess, tmp_path: Path, speed: float | None, seconds: float
) -> None:
    """Audio faster than speech is kept whole beside four processes that take all the time they get."""
    with busy_processes(4):
        hear(bot, tmp_path, seconds, speed)


# A client that stops itself with the first audio, and ends when the bot has said everything.
_STOPPED = """
    import os, signal, sys
    from rtvi_sync import RTVIClient, WebSocketTransport
    from rtvi_sync.media import SilenceSource, WavSink

    class Stopping(WavSink):
        stopped = False

        def write(self, pcm, sample_rate_hz):
            if not self.stopped:
                self.stopped = True
                os.kill(os.getpid(), signal.SIGSTOP)
            super().write(pcm, sample_rate_hz)

    sink = Stopping(sys.argv[2])
    client = RTVIClient(transport=WebSocketTransport(sys.argv[1]), mic=SilenceSource(), enable_mic=False, speaker=sink)
    with client:
        client.send_client_message("recite", {"seconds": 8, "speed": None})
        client.send_client_request("recited", timeout=120)
    print(client.stats().speaker_dropped_seconds)
"""


def test_a_process_that_is_stopped(bot: BotProcess, tmp_path: Path) -> None:
    """Speech sent while the client's process is stopped arrives all at once when the process continues, and is kept."""
    path = tmp_path / "a.wav"
    with python(_STOPPED, bot.ws_url, str(path), executable=sys.executable) as process:
        try:
            assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
            with client_of(bot) as observer:
                while observer.send_client_request("recited", timeout=GUARD) < 7.99:
                    pass
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=GUARD)
        finally:
            process.kill()
    assert (out.strip(), err) == ("0.0", "")
    assert audio_of(path) == speech(8)


# Clients that record and end themselves, each in its own process, once their file has received some bytes.
_KILLED = """
    import os, resource, signal, sys, threading
    from rtvi_sync import RTVIClient, WebSocketTransport
    from rtvi_sync.media import SilenceSource, WavSink

    class Counting(WavSink):
        def __init__(self, path, bytes):
            super().__init__(path)
            self.given, self.wanted, self.enough = 0, bytes, threading.Event()

        def write(self, pcm, sample_rate_hz):
            super().write(pcm, sample_rate_hz)
            self.given += len(pcm)
            if self.given >= self.wanted:
                self.enough.set()

    WAYS = {
        "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "_exit": lambda: os._exit(3),
        "crash": os.abort,
    }

    def record(url, path, way, bytes):
        sink = Counting(path, bytes)
        client = RTVIClient(transport=WebSocketTransport(url), mic=SilenceSource(), enable_mic=False, speaker=sink)
        client.connect()
        client.send_client_message("recite", {"seconds": 10, "speed": 10})
        assert sink.enough.wait()
        os.write(1, f"{path} {sink.given}\\n".encode())
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        WAYS[way]()

    url, *orders = sys.argv[1:]
    children = []
    for order in orders:
        path, way, bytes = order.split(",")
        children.append(os.fork())
        if not children[-1]:
            try:
                record(url, path, way, int(bytes))
            finally:
                os._exit(1)  # it has not come to its end
    print(*(os.waitpid(child, 0)[1] for child in children))
"""


def test_a_process_that_is_killed(bot: BotProcess, tmp_path: Path) -> None:
    """The file of a process that is killed in any way, at any moment, opens and lacks less than 0.25 s."""
    moments = random.Random(7)
    ways = ["SIGKILL", "SIGTERM", "_exit", "crash"]
    orders = [(tmp_path / f"{n}.wav", ways[n % 4], moments.randrange(2, 8 * 2 * RATE_HZ)) for n in range(8)]
    code, out, err = run_python(
        _KILLED, bot.ws_url, *(f"{path},{way},{size}" for path, way, size in orders), timeout=GUARD
    )
    assert (code, err) == (0, "")
    *told, ends = out.splitlines()
    expected = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "_exit": 3 << 8, "crash": signal.SIGABRT}
    assert [int(status) for status in ends.split()] == [expected[way] for _, way, _ in orders]
    said = speech(10)
    for line in told:
        path, given = line.split()
        kept = audio_of(Path(path))
        assert said.startswith(kept)
        assert int(given) - len(kept) < 0.25 * 2 * RATE_HZ
    assert len(told) == 8
