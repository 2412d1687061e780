"""Long speech on a real sound system: nothing missing, nothing between, also while the program is busy."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys

import numpy as np
import pytest

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.media.devices.portaudio_backend import backend
from rtvi_sync.media.devices.speaker import DeviceSpeaker
from tests.support.busy import busy_threads, undisturbed
from tests.support.slowness import GUARD

from .pulse import RATE, PulseServer, Samples
from .signals import alignment

pytestmark = pytest.mark.inside

_FRAME = RATE // 25
# Reports when each frame of 40 ms is due: in real time, with a head start of two, as Pipecat sends.
_BOT = """
import sys, time
begun = time.monotonic()
for number in range(int(sys.argv[1])):
    time.sleep(max(0.0, begun + 0.04 * max(0, number - 1) - time.monotonic()))
    sys.stdout.buffer.write(b".")
    sys.stdout.buffer.flush()
"""


def noise(seconds: float) -> Samples:
    """Return noise that survives a change of the sample rate."""
    white = np.random.default_rng(5).standard_normal(int(seconds * RATE) + 15)
    smooth = np.convolve(white, np.hanning(18)[1:-1] / 4, "valid")
    return (smooth * 3000).astype(np.int16)


def play(speaker: DeviceSpeaker, said: Samples) -> None:
    """Write the sound to the speaker in real time, as paced by a bot in another process."""
    frames = len(said) // _FRAME
    command = [sys.executable, "-c", _BOT, str(frames)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as bot:
        assert bot.stdout is not None
        for number in range(frames):
            assert bot.stdout.read(1) == b"."
            speaker.write(said[number * _FRAME : (number + 1) * _FRAME].tobytes(), RATE)


def shifts(heard: Samples, said: Samples) -> list[float]:
    """Return by how many samples each half second of speech is played later than the first one; negative if earlier,
    infinity if it is not found.
    """
    whole, step = alignment(heard, said)[1], RATE // 2
    found: list[float] = []
    for begin in range(0, len(said) - step + 1, step):
        around = heard[max(0, whole + begin - RATE // 4) :][: step + RATE // 2]
        similar, at = alignment(around, said[begin : begin + step])
        found.append(max(0, whole + begin - RATE // 4) + at - begin if similar > 0.98 else math.inf)
    return [shift - found[0] if math.isfinite(found[0]) else math.inf for shift in found]


@pytest.mark.parametrize(
    ("seconds", "threads", "busy_since"),
    [
        (2, 0, "never"),
        pytest.param(60, 0, "never", marks=pytest.mark.matrix),
        pytest.param(60, 2, "before", marks=pytest.mark.matrix),
        pytest.param(60, 2, "after", marks=pytest.mark.matrix),
    ],
)
def test_a_steady_stream(pulse: PulseServer, library: str, seconds: int, threads: int, busy_since: str) -> None:
    """Speech that a bot sends in real time is heard without a gap or an underrun, beside idle threads, and beside
    threads that are busy since before or after the speaker was opened.
    """
    said = noise(seconds)

    def attempt() -> tuple[int, float]:
        speaker, heard = played(pulse, library, said, threads, busy_since)
        assert speaker.dropped_seconds == 0
        return speaker.underruns, max(map(abs, shifts(heard, said)))

    underruns, shift = undisturbed(attempt, lambda result: not result[0] and result[1] <= 1)
    assert underruns == 0
    assert shift <= 1


def played(
    pulse: PulseServer, library: str, said: Samples, threads: int, busy_since: str
) -> tuple[DeviceSpeaker, Samples]:
    """Play the sound beside busy threads; return the speaker and the heard sound."""
    failures: list[Exception] = []
    with pulse.record() as recording, contextlib.ExitStack() as busy:
        if busy_since == "before":
            busy.enter_context(busy_threads(threads))
        speaker = DeviceSpeaker(
            backend(library), "ALSA/speaker_a", volume=lambda: 1.0, report=failures.append, opened=lambda _: None
        )
        speaker.wait_opened(Deadline(GUARD))
        if busy_since == "after":
            recording.wait(0.5)
            busy.enter_context(busy_threads(threads))
            recording.wait(2.5)  # so that the speaker has found out
        play(speaker, said)
        busy.close()
        speaker.halt()
        assert speaker.join(Deadline(GUARD)) is None
        recording.wait(0.3)
        heard = recording.stop()
    assert failures == []
    return speaker, heard
