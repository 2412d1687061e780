"""From the mouth to the ear: what the SDK adds to the time that sound takes through the devices.

    python -m benchmarks.mouth_to_ear [--seconds 20]

Measured are, over the loopback interface and the null sinks of a PulseAudio daemon of its own:

* microphone to wire: from the moment at which the device gave a period to the moment at which the bot has it;
* wire to speaker: from the moment at which the bot sends a frame to the moment at which its first sample is given to
  the device. Bot and client are two processes, so both include the loopback interface and the scheduler's part;
* bot to ear: from the moment at which the bot sends the first frame of a speech to the moment at which PyAudio gives it
  back from a microphone that hears the speaker;
* the devices alone: from the moment at which PyAudio is given a sound for the speaker to the moment at which PyAudio
  gives it back from that microphone, with periods as the SDK uses them, a buffer that is full and no SDK at work.

It needs PulseAudio, its plugin for ALSA, PyAudio and numpy.
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
from typing import Any, Final

import attrs
import numpy as np

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media.devices import portaudio_noise
from tests.audio.pulse import PulseServer, missing_parts

from .stamping_bot import PAUSE, mark
from .stamping_bot import RATE as BOT_RATE

_MIC_RATE: Final = 16000
_MIC_PERIOD: Final = 0.02
_SPEAKER_PERIOD: Final = 0.04
_INT16: Final = 8  # paInt16
_LOUD: Final = 10000


@attrs.frozen
class Figures:
    """Seconds that something took, many times."""

    name: str
    seconds: Sequence[float]

    def row(self, whole: float) -> str:
        """A row of the table; `whole` is the p50 of the devices alone."""
        p50, p99 = (float(np.percentile(self.seconds, percentage)) for percentage in (50, 99))
        times = f"{1000 * p50:.1f} ms | {1000 * p99:.1f} ms"
        return f"| {self.name} | {len(self.seconds)} | {times} | {p50 / whole:.1%} | {p99 / whole:.1%} |"

    def told(self) -> dict[str, str | int | float]:
        """As an object of JSON."""
        p50, p99 = (float(np.percentile(self.seconds, percentage)) for percentage in (50, 99))
        return {"name": self.name, "sounds": len(self.seconds), "p50": p50, "p99": p99}


@contextlib.contextmanager
def a_daemon() -> Iterator[PulseServer]:
    """A PulseAudio daemon to which this process is led."""
    with tempfile.TemporaryDirectory(prefix="rtvi-") as directory:
        server = PulseServer(Path(directory))
        os.environ.update(server.environment)
        server.start()
        try:
            yield server
        finally:
            server.close()


class Ear:
    """A microphone that hears `speaker_a`, read by PyAudio alone, in a thread of its own; a context manager."""

    def __init__(self) -> None:
        self._audio = begin_portaudio()
        self._heard: list[tuple[float, bytes]] = []
        self._hearing, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read)

    def onsets(self) -> list[float]:
        """When sound began to be heard, after silence."""
        loud = [when for when, pcm in self._heard if np.abs(np.frombuffer(pcm, np.int16).astype(int)).max() > _LOUD]
        return [when for before, when in itertools.pairwise([0.0, *loud]) if when - before > PAUSE / 2]

    def __enter__(self) -> Ear:
        self._thread.start()
        self._hearing.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(10)
        self._audio.terminate()

    def _read(self) -> None:
        period = int(_MIC_RATE * _MIC_PERIOD)
        device = device_index(self._audio, "speaker_a_monitor")
        stream = self._audio.open(_MIC_RATE, 1, _INT16, input=True, input_device_index=device, frames_per_buffer=period)
        while not self._over.is_set():
            pcm = stream.read(period, exception_on_overflow=False)
            self._heard.append((time.monotonic(), pcm))
            self._hearing.set()
        stream.close()


def begin_portaudio() -> Any:
    """PyAudio, without the noise that its libraries make."""
    import pyaudio

    portaudio_noise.silence()
    return pyaudio.PyAudio()


def device_index(audio: Any, name: str) -> int:
    """The number of a device of the daemon."""
    return next(i for i in range(audio.get_device_count()) if audio.get_device_info_by_index(i)["name"] == name)


def trips(name: str, said: Sequence[float], heard: Sequence[float]) -> Figures:
    """From the beginning of each sound to the moment at which it was heard."""
    if len(said) != len(heard):
        raise RuntimeError(f"{name}: {len(heard)} of {len(said)} sounds were heard")
    return Figures(name, [end - begin for begin, end in zip(said, heard, strict=True)])


def devices_alone(seconds: float) -> Figures:
    """Plays a burst now and then and waits until it is heard; the speaker's buffer is full all the time."""
    audio = begin_portaudio()
    frames = int(BOT_RATE * _SPEAKER_PERIOD)
    device = device_index(audio, "speaker_a")
    stream = audio.open(BOT_RATE, 1, _INT16, output=True, output_device_index=device, frames_per_buffer=frames)
    quiet, burst = bytes(2 * frames), np.full(frames, 2 * _LOUD, np.int16).tobytes()
    each = round(2 * PAUSE / _SPEAKER_PERIOD)
    said = []
    with Ear() as ear:
        for number in range(round(seconds / _SPEAKER_PERIOD)):
            begins = number % each == each - 1
            if begins:
                said.append(time.monotonic())
            stream.write(burst if begins else quiet)
        stream.write(each * quiet)
    stream.close()
    audio.terminate()
    return trips("the devices alone", said, ear.onsets())


# The SDK


@attrs.define
class Stamps:
    """When which sound passed between the SDK and PyAudio."""

    read: dict[str, float] = attrs.field(factory=dict)
    written: list[tuple[float, bytes]] = attrs.field(factory=list)

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Notes them within the block."""
        import pyaudio

        stream: Any = pyaudio.PyAudio.Stream
        read, write = stream.read, stream.write

        def noting_read(this: Any, *args: Any, **options: Any) -> bytes:
            pcm: bytes = read(this, *args, **options)
            self.read[mark(pcm)] = time.monotonic()
            return pcm

        def noting_write(this: Any, pcm: bytes, *args: Any, **options: Any) -> None:
            self.written.append((time.monotonic(), pcm))
            write(this, pcm, *args, **options)

        stream.read, stream.write = noting_read, noting_write
        try:
            yield
        finally:
            stream.read, stream.write = read, write

    def to_wire(self, heard: Sequence[tuple[float, str]]) -> Figures:
        """What the bot heard, beside when it was read."""
        found = [when - self.read[sound] for when, sound in heard if sound in self.read]
        return Figures("microphone to wire", found)

    def from_wire(self, said: Sequence[tuple[float, str]]) -> Figures:
        """What the bot said, beside when it was written."""
        played = b"".join(pcm for _, pcm in self.written)
        ends = np.cumsum([len(pcm) for _, pcm in self.written])
        found = []
        for when, sound in said:
            position = played.find(bytes.fromhex(sound))
            if position >= 0:
                found.append(self.written[int(np.searchsorted(ends, position, side="right"))][0] - when)
        return Figures("wire to speaker", found)


def through_the_sdk(server: PulseServer, seconds: float) -> list[Figures]:
    """A session in which both sides speak: noise, of which each piece is known again."""
    noise = np.random.default_rng(2).integers(-20000, 20000, int((seconds + 10) * BOT_RATE), np.int16)
    stamps = Stamps()
    bot = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.stamping_bot", "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True
    )
    with bot, stamps.noted(), Ear() as ear:
        assert bot.stdout is not None
        transport = WebSocketTransport(bot.stdout.readline().strip())
        client = RTVIClient(transport=transport, mic="ALSA/mic_a", speaker="ALSA/speaker_a")
        playing = server.play(noise, BOT_RATE)
        with client:
            threading.Event().wait(seconds + 1)
        playing.kill()
        noted = json.load(bot.stdout)
    heard, said = noted["heard"], noted["said"]
    figures = [stamps.to_wire(heard), stamps.from_wire(said)]
    for passed, sent in zip(figures, (heard, said), strict=True):
        if len(passed.seconds) < 0.9 * len(sent):
            raise RuntimeError(f"{passed.name}: only {len(passed.seconds)} of {len(sent)} pieces came through")
    begun = [when for (before, _), (when, _) in itertools.pairwise([(0.0, ""), *said]) if when - before > PAUSE / 2]
    return [*figures, trips("bot to ear", begun, ear.onsets())]


def measure(seconds: float, show: Callable[[str], None] = print) -> list[Figures]:
    """Measure everything and show a table."""
    with a_daemon() as server:
        devices = devices_alone(seconds)
        figures = [*through_the_sdk(server, seconds), devices]
    whole = float(np.percentile(devices.seconds, 50))
    show("| | sounds | p50 | p99 | p50 beside that of the devices | p99 beside it |")
    show("|---|---|---|---|---|---|")
    for each in figures:
        show(each.row(whole))
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the two measurements (default 20)")
    parser.add_argument("--json", action="store_true", help="print a list of objects, times in seconds, not a table")
    arguments = parser.parse_args()
    missing = missing_parts()
    if missing:
        parser.exit(1, f"{missing}\n")
    if arguments.json:
        print(json.dumps([each.told() for each in measure(arguments.seconds, lambda _: None)]))
    else:
        measure(arguments.seconds)


if __name__ == "__main__":
    main()
