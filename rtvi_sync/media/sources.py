"""Sources that need no device."""

from __future__ import annotations

import functools
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..errors import DeviceError
from ..protocol.validation import BYTES, COUNT_OR_ZERO, FUNCTION, PATH, WAIT, number
from . import pcm as pcm_tools
from .base import file_error

MAX_WAV_FILE_BYTES = 256 * 1024 * 1024


class SourceRun:
    """One session's use of a source: was all of it sent?"""

    def __init__(self) -> None:
        self._over = Latch()
        self._sent = False

    def all_sent(self) -> None:
        """The last chunk was sent. Called on the thread of the schedule."""
        self._sent = True
        self._over.set()

    def end(self) -> None:
        """Nothing more will be sent."""
        self._over.set()

    def wait(self, timeout: float | None) -> bool:
        """Block until either happened, at most `timeout` seconds; True if all was sent."""
        self._over.wait(Deadline(timeout))
        return self._sent


class PackagedSource:
    """What the sources of this package have beyond the protocol: `wait()`."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._sample_rate_hz = pcm_tools.check_rate(sample_rate_hz)
        self._run: SourceRun | None = None

    @property
    def sample_rate_hz(self) -> int:
        """Samples per second."""
        return self._sample_rate_hz

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all of this source was sent to the bot in the current session.

        Never waits for a session to begin: while no session has this source (it has it from the device phase of
        `connect()` until its end) the answer is that of the last session, or False. May be called from any thread.

        Args:
            timeout: limit in seconds; None: until all was sent or the session is over.

        Returns:
            True if all of it was sent. False if the time is up, the session ended first, the source was replaced or
            failed, or it has no end.
        """
        WAIT.or_none.check(timeout=timeout)
        run = self._run
        return run is not None and run.wait(timeout)

    def begin_run(self) -> SourceRun:
        """A session that has claimed this source begins to use it."""
        self._run = run = SourceRun()
        return run


class MemorySource(PackagedSource):
    """A source whose samples can be had at any position without waiting."""

    # Length in samples; None: endless.
    total_frames: int | None = None
    _position = 0

    def samples(self, start: int, frames: int) -> bytes:
        """Up to `frames` samples from position `start` on; fewer only at the end."""
        raise NotImplementedError

    def read(self, frames: int) -> bytes:
        """The next samples; for programs that read the source themselves. A session always starts at the beginning."""
        COUNT_OR_ZERO.check(frames=frames)
        data = self.samples(self._position, frames)
        self._position += len(data) // 2
        return data

    def close(self) -> None:
        """Return to the beginning."""
        self._position = 0


class BytesSource(MemorySource):
    """PCM from memory.

    Args:
        pcm: signed 16-bit little endian mono samples.
        sample_rate_hz: their rate.

    Raises:
        ValueError: an odd number of bytes, or an impossible rate.
    """

    def __init__(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int) -> None:
        super().__init__(sample_rate_hz)
        BYTES.check(pcm=pcm)
        self._pcm = bytes(pcm)
        if len(self._pcm) % 2:
            raise ValueError(f"pcm has 2 bytes per sample, so {len(self._pcm)} bytes cannot be right")
        self.total_frames: int | None = len(self._pcm) // 2

    def samples(self, start: int, frames: int) -> bytes:
        return self._pcm[2 * start : 2 * (start + frames)]


class WavSource(BytesSource):
    """The audio of a WAV file, which is read whole right here, so that a wrong path shows at once.

    8, 16, 24 and 32-bit PCM of any number of channels is taken; what is sent is 16-bit mono at the rate of the file,
    bit exact if the file is that already.

    Args:
        path: a WAV file of at most 256 MiB.

    Raises:
        DeviceError: there is no such file (`.type` "not-found"), it may not be read ("permissions"), or it is not a
            WAV file of PCM ("unknown"); the message says what to do.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        PATH.check(path=path)
        self.path: Path = Path(path)
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_WAV_FILE_BYTES + 1)
        except OSError as error:
            raise file_error(f"Cannot read the WAV file {self.path}", "mic", error) from error
        try:
            if len(data) > MAX_WAV_FILE_BYTES:
                raise ValueError(
                    f"it is larger than {MAX_WAV_FILE_BYTES >> 20} MiB; split it, or read it with a CallbackSource"
                )
            pcm, rate = pcm_tools.parse_wav(data)
        except ValueError as error:
            raise DeviceError(f"Cannot use the WAV file {self.path}: {error}", devices=("mic",)) from error
        super().__init__(pcm, rate)

    def __repr__(self) -> str:
        return f"WavSource({str(self.path)!r})"


class SilenceSource(MemorySource):
    """Silence without end: a user who says nothing.

    Args:
        sample_rate_hz: samples per second.
    """

    def __init__(self, sample_rate_hz: int = 16_000) -> None:
        super().__init__(sample_rate_hz)

    def samples(self, start: int, frames: int) -> bytes:  # noqa: ARG002 - silence is the same everywhere
        return bytes(2 * frames)


class ToneSource(MemorySource):
    """A sine tone.

    Args:
        frequency_hz: taken to a tenth of a hertz; below half of the sample rate.
        duration: seconds; None: without end.
        sample_rate_hz: samples per second.
        volume: amplitude from 0 to 1.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        frequency_hz: float = 440.0,
        duration: float | None = None,
        sample_rate_hz: int = 16_000,
        volume: float = 0.5,
    ) -> None:
        super().__init__(sample_rate_hz)
        number(0.1, sample_rate_hz / 2 - 0.1).check(frequency_hz=frequency_hz)
        number(0, 1).check(volume=volume)
        WAIT.or_none.check(duration=duration)
        if duration is not None:
            self.total_frames: int | None = round(duration * sample_rate_hz)
        self._table = _sine(round(10 * frequency_hz), sample_rate_hz, volume)

    def samples(self, start: int, frames: int) -> bytes:
        if self.total_frames is not None:
            frames = max(0, min(frames, self.total_frames - start))
        begin = 2 * start % len(self._table)
        data = self._table[begin : begin + 2 * frames]
        while len(data) < 2 * frames:
            data += self._table[: 2 * frames - len(data)]
        return data


class CallbackSource(PackagedSource):
    """Calls a function for audio, on a thread of its own, up to 1 s ahead of what is sent.

    Args:
        fn: `fn(frames)` returns up to `frames` samples of PCM and may block; `b""` ends the source. A function that
            is late is not waited for: silence goes out instead.
        sample_rate_hz: rate of what `fn` returns.
    """

    def __init__(self, fn: Callable[[int], bytes], sample_rate_hz: int = 16_000) -> None:
        super().__init__(sample_rate_hz)
        FUNCTION.check(fn=fn)
        self._fn = fn

    def read(self, frames: int) -> bytes:
        """Call the function."""
        return self._fn(frames)

    def close(self) -> None:
        """Nothing to close."""


# Read on the thread that times them. Their subclasses are not: those may hold code of the user.
MEMORY_SOURCES = (BytesSource, WavSource, SilenceSource, ToneSource)


@functools.lru_cache(maxsize=16)
def _sine(tenths_hz: int, sample_rate_hz: int, volume: float) -> bytes:
    # Whole periods, so that they can be repeated without a step; computing a sine for every sample would keep the
    # thread that times it from the sources of other sessions.
    length = 10 * sample_rate_hz // math.gcd(10 * sample_rate_hz, tenths_hz)
    angle = 2 * math.pi * tenths_hz / (10 * sample_rate_hz)
    return struct.pack(f"<{length}h", *(round(32767 * volume * math.sin(angle * i)) for i in range(length)))
