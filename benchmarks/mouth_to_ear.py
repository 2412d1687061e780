"""Mouth-to-ear delay: the SDK's part, added to the latency of the audio devices.

    python -m benchmarks.mouth_to_ear [--seconds 20] [--library sounddevice]

It measures, over the loopback interface and the null sinks of a PulseAudio daemon of its own:

* microphone to wire: from the time at which the device returned a period to the time at which the bot received it;
* wire to speaker: from the time at which the bot sends a frame to the time at which its first sample is written to the
  device. Bot and client are two processes, so both include the loopback interface and the scheduler;
* bot to ear: from the time at which the bot sends the first frame of a speech to the time at which the audio library
  reads it from a microphone that is fed by the speaker;
* the devices alone: from the time at which the library writes a burst to the speaker to the time at which it reads that
  from that microphone, with the SDK's periods, a full buffer and without the SDK.

It needs PulseAudio, its plugin for ALSA, PyAudio or sounddevice, and numpy.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import numpy as np

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media.devices import portaudio, pyaudio_binding, sounddevice_binding
from rtvi_sync.media.devices.audio_libraries import AUDIO_LIBRARIES, preferred_library
from rtvi_sync.media.devices.portaudio import PortAudioBinding
from tests.audio.pulse import PulseServer, missing_parts

from .stamping_bot import PAUSE, mark
from .stamping_bot import RATE as BOT_RATE

Library: TypeAlias = Literal["pyaudio", "sounddevice"]

_MIC_RATE: Final = 16000
_MIC_PERIOD: Final = 0.02
_SPEAKER_PERIOD: Final = 0.04
_LOUD: Final = 10000
#: The SDK's binding of each library, and the class of the streams that it opens.
_BINDINGS: Final[dict[Library, tuple[Any, Any]]] = {
    "pyaudio": (pyaudio_binding, pyaudio_binding.PyAudioStream),
    "sounddevice": (sounddevice_binding, sounddevice_binding.SoundDeviceStream),
}


@attrs.frozen
class Figures:
    """The latencies of one path, in seconds."""

    name: str
    seconds: Sequence[float]

    def row(self, whole: float) -> str:
        """Return a row of the table; `whole` is the p50 of the devices alone."""
        p50, p99 = (float(np.percentile(self.seconds, percentage)) for percentage in (50, 99))
        times = f"{1000 * p50:.1f} ms | {1000 * p99:.1f} ms"
        return f"| {self.name} | {len(self.seconds)} | {times} | {p50 / whole:.1%} | {p99 / whole:.1%} |"

    def as_json(self) -> dict[str, str | int | float]:
        """Return the percentiles as a JSON object."""
        p50, p99 = (float(np.percentile(self.seconds, percentage)) for percentage in (50, 99))
        return {"name": self.name, "sounds": len(self.seconds), "p50": p50, "p99": p99}


@contextlib.contextmanager
def pulse_daemon() -> Iterator[PulseServer]:
    """Run a PulseAudio daemon that this process uses."""
    with tempfile.TemporaryDirectory(prefix="rtvi-") as directory:
        server = PulseServer(Path(directory))
        os.environ.update(server.environment)
        server.start()
        try:
            yield server
        finally:
            server.close()


class MonitorRecorder:
    """A recorder of `speaker_a`'s monitor, read by a library on a thread of its own; a context manager."""

    def __init__(self, library: Library) -> None:
        self._audio = begin_portaudio(library)
        self._frames: list[tuple[float, bytes]] = []
        self._started, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read)

    def onsets(self) -> list[float]:
        """Return when audio started after silence."""
        loud = [when for when, pcm in self._frames if np.abs(np.frombuffer(pcm, np.int16).astype(int)).max() > _LOUD]
        return [when for before, when in itertools.pairwise([0.0, *loud]) if when - before > PAUSE / 2]

    def __enter__(self) -> MonitorRecorder:
        self._thread.start()
        self._started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._audio.terminate()

    def _read(self) -> None:
        period = int(_MIC_RATE * _MIC_PERIOD)
        device = device_index(self._audio, "speaker_a_monitor")
        stream = self._audio.open_input(device, _MIC_RATE, 1, period)
        while not self._stop.is_set():
            pcm = stream.read(period)
            self._frames.append((time.monotonic(), pcm))
            self._started.set()
        stream.close()


def begin_portaudio(library: Library) -> PortAudioBinding:
    """Return PortAudio, without the messages of the libraries below it."""
    module, _ = _BINDINGS[library]
    loaded = module.load()
    portaudio.silence_libraries()
    audio: PortAudioBinding = module.Binding(loaded)
    return audio


def device_index(audio: PortAudioBinding, name: str) -> int:
    """Return the index of one of the daemon's devices."""
    return next(int(device["index"]) for device in audio.devices() if device["name"] == name)


def latencies(name: str, said: Sequence[float], heard: Sequence[float]) -> Figures:
    """Return the latencies from each burst to its recording."""
    if len(said) != len(heard):
        raise RuntimeError(f"{name}: {len(heard)} of {len(said)} bursts were recorded")
    return Figures(name, [end - begin for begin, end in zip(said, heard, strict=True)])


def devices_alone(library: Library, seconds: float) -> Figures:
    """Play bursts into the speaker, whose buffer stays full, and measure when they are recorded."""
    audio = begin_portaudio(library)
    frames = int(BOT_RATE * _SPEAKER_PERIOD)
    stream = audio.open_output(device_index(audio, "speaker_a"), BOT_RATE, 1, frames)
    quiet, burst = bytes(2 * frames), np.full(frames, 2 * _LOUD, np.int16).tobytes()
    each = round(2 * PAUSE / _SPEAKER_PERIOD)
    said = []
    with MonitorRecorder(library) as recorder:
        for number in range(round(seconds / _SPEAKER_PERIOD)):
            begins = number % each == each - 1
            if begins:
                said.append(time.monotonic())
            stream.write(burst if begins else quiet, frames)
        stream.write(each * quiet, each * frames)
    stream.close()
    audio.terminate()
    return latencies("the devices alone", said, recorder.onsets())


# The SDK


@attrs.define
class Stamps:
    """The times at which audio passed between the SDK and the audio library."""

    read: dict[str, float] = attrs.field(factory=dict)
    written: list[tuple[float, bytes]] = attrs.field(factory=list)

    @contextlib.contextmanager
    def recorded(self, library: Library) -> Iterator[None]:
        """Record these times within the block."""
        _, stream = _BINDINGS[library]
        read, write = stream.read, stream.write

        def recording_read(this: Any, frames: int) -> bytes:
            pcm: bytes = read(this, frames)
            self.read[mark(pcm)] = time.monotonic()
            return pcm

        def recording_write(this: Any, pcm: bytes, frames: int) -> None:
            self.written.append((time.monotonic(), pcm))
            write(this, pcm, frames)

        stream.read, stream.write = recording_read, recording_write
        try:
            yield
        finally:
            stream.read, stream.write = read, write

    def to_wire(self, heard: Sequence[tuple[float, str]]) -> Figures:
        """Return the latencies from the library's read to the bot."""
        found = [when - self.read[key] for when, key in heard if key in self.read]
        return Figures("microphone to wire", found)

    def from_wire(self, said: Sequence[tuple[float, str]]) -> Figures:
        """Return the latencies from the bot to the library's write."""
        played = b"".join(pcm for _, pcm in self.written)
        ends = np.cumsum([len(pcm) for _, pcm in self.written])
        found = []
        for when, key in said:
            position = played.find(bytes.fromhex(key))
            if position >= 0:
                found.append(self.written[int(np.searchsorted(ends, position, side="right"))][0] - when)
        return Figures("wire to speaker", found)


def through_the_sdk(server: PulseServer, library: Library, seconds: float) -> list[Figures]:
    """Measure a session in which both sides send noise, each frame of which is unique."""
    noise = np.random.default_rng(2).integers(-20000, 20000, int((seconds + 10) * BOT_RATE), np.int16)
    stamps = Stamps()
    bot = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stamping_bot", "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True
    )
    with bot, stamps.recorded(library), MonitorRecorder(library) as recorder:
        assert bot.stdout is not None
        transport = WebSocketTransport(bot.stdout.readline().strip())
        client = RTVIClient(transport=transport, mic="ALSA/mic_a", speaker="ALSA/speaker_a", audio_backend=library)
        playing = server.play(noise, BOT_RATE)
        with client:
            threading.Event().wait(seconds + 1)
        playing.kill()
        noted = json.load(bot.stdout)
    heard, said = noted["heard"], noted["said"]
    figures = [stamps.to_wire(heard), stamps.from_wire(said)]
    for passed, sent in zip(figures, (heard, said), strict=True):
        if len(passed.seconds) < 0.9 * len(sent):
            raise RuntimeError(f"{passed.name}: only {len(passed.seconds)} of {len(sent)} frames arrived")
    begun = [when for (before, _), (when, _) in itertools.pairwise([(0.0, ""), *said]) if when - before > PAUSE / 2]
    return [*figures, latencies("bot to ear", begun, recorder.onsets())]


def measure(library: Library, seconds: float, show: Callable[[str], None] = print) -> list[Figures]:
    """Measure everything, and print a table."""
    with pulse_daemon() as server:
        devices = devices_alone(library, seconds)
        figures = [*through_the_sdk(server, library, seconds), devices]
    whole = float(np.percentile(devices.seconds, 50))
    show("| | sounds | p50 | p99 | p50 beside that of the devices | p99 beside it |")
    show("|---|---|---|---|---|---|")
    for each in figures:
        show(each.row(whole))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="duration of each of the two measurements (default 20)"
    )
    parser.add_argument(
        "--library", choices=AUDIO_LIBRARIES, default=preferred_library(), help="for the devices (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print a list of objects, times in seconds, not a table")
    arguments = parser.parse_args()
    missing = missing_parts()
    if missing:
        parser.exit(1, f"{missing}\n")
    if arguments.json:
        print(json.dumps([each.as_json() for each in measure(arguments.library, arguments.seconds, lambda _: None)]))
    else:
        measure(arguments.library, arguments.seconds)


if __name__ == "__main__":
    main()
