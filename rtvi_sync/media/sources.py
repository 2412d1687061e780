"""Audio sources that need no device."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..errors import DeviceError
from ..protocol.text import one_line
from ..protocol.validation import BYTES, COUNT_OR_ZERO, PATH, WAIT, function_taking, number
from . import pcm as pcm_tools
from .audio_files import decode
from .base import file_error
from .resample import resample

MAX_WAV_FILE_BYTES = 256 * 1024 * 1024


class SourceRun:
    """One session's use of a source, which records whether all of it was sent."""

    def __init__(self) -> None:
        self._over = Latch()
        self._sent = False
        self._calls: list[Callable[[], object]] = []  # of `when_over()`, until the run is over

    @property
    def sent(self) -> bool:
        """True if the whole source was sent."""
        return self._sent

    @property
    def is_over(self) -> bool:
        """True if the run is over: nothing more will be sent."""
        return self._over.is_set()

    def all_sent(self) -> None:
        """Record that the last chunk was sent; called on the scheduler's thread."""
        self._sent = True
        self.end()

    def end(self) -> None:
        """Record that nothing more will be sent."""
        self._over.set()
        with contextlib.suppress(IndexError):
            while True:
                self._calls.pop()()

    def when_over(self, call: Callable[[], object]) -> None:
        """Call something when the run is over, on any thread; at once if it is over. The call must not block."""
        self._calls.append(call)
        if self.is_over:
            self.end()

    def wait(self, timeout: float | None) -> bool:
        """Block until the run is over, at most `timeout` seconds; return whether all was sent."""
        self._over.wait(Deadline(timeout))
        return self._sent


class PackagedSource:
    """The base class of this package's sources, which adds `wait()` to the protocol."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._sample_rate_hz = pcm_tools.check_rate(sample_rate_hz)
        self._run: SourceRun | None = None

    @property
    def sample_rate_hz(self) -> int:
        """The samples per second."""
        return self._sample_rate_hz

    @property
    def is_endless(self) -> bool:
        """True if the source is known to have no end."""
        return False

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all of this source was sent to the bot in the current session.

        Never waits for a session to start: while no session uses this source, the result is the last session's,
        or False. A session uses it from the device phase of `connect()` until the session ends. May be called from any
        thread.

        Args:
            timeout (seconds): Limit of the wait. None: until all was sent or the session has ended.

        Returns:
            True if all of it was sent. False if the timeout has passed, the session ended first, the source was
            replaced or failed, or it has no end.
        """
        WAIT.or_none.check(timeout=timeout)
        run = self._run
        return run is not None and run.wait(timeout)

    def begin_run(self) -> SourceRun:
        """Start the use by a session that has leased this source."""
        self._run = run = SourceRun()
        return run


class MemorySource(PackagedSource):
    """A source whose samples can be read at any position without blocking."""

    # Length in samples; None: endless.
    total_frames: int | None = None
    _position = 0

    @property
    def is_endless(self) -> bool:
        """True if the source has no end."""
        return self.total_frames is None

    def samples(self, start: int, frames: int) -> bytes:
        """Return up to `frames` samples from position `start` on; fewer only at the end."""
        raise NotImplementedError

    def read(self, frames: int) -> bytes:
        """Return the next samples, for applications that read the source themselves.

        A session always starts at the first sample.
        """
        COUNT_OR_ZERO.check(frames=frames)
        data = self.samples(self._position, frames)
        self._position += len(data) // 2
        return data

    def close(self) -> None:
        """Rewind to the first sample."""
        self._position = 0


class BytesSource(MemorySource):
    """A source of PCM in memory.

    Args:
        pcm: Signed 16-bit little endian mono samples.
        sample_rate_hz (hertz): Sample rate of `pcm`.

    Raises:
        ValueError: The number of bytes is odd, or the rate is out of range.
    """

    def __init__(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int) -> None:
        super().__init__(sample_rate_hz)
        BYTES.check(pcm=pcm)
        self._pcm = bytes(pcm)
        if len(self._pcm) % 2:
            raise ValueError(
                f"pcm has {len(self._pcm)} bytes, an odd number; pass 16-bit samples, which have 2 bytes each"
            )
        self.total_frames: int | None = len(self._pcm) // 2

    @property
    def pcm(self) -> bytes:
        """All samples."""
        return self._pcm

    def samples(self, start: int, frames: int) -> bytes:
        """See `MemorySource.samples()`."""
        return self._pcm[2 * start : 2 * (start + frames)]


class WavSource(BytesSource):
    """A source of the audio of a file; the constructor reads the whole file, so that it can report a wrong path.

    It reads WAV files of 8, 16, 24 and 32-bit PCM, floating point, µ-law and A-law. With the extra `files` it also
    reads the formats of soundfile: FLAC, Ogg, MP3 and others. It sends 16-bit mono (the mean of up to 32 channels), bit
    exact if the file is 16-bit mono and keeps its sample rate. Each session starts at the beginning of the file; after
    its end, the client sends silence. A file given as ``mic=Path("question.wav")`` behaves the same.

    Args:
        path: An audio file of at most 256 MiB.
        sample_rate_hz: The rate to which the audio is converted. None: the file's rate. Pipecat's bots do not convert
            audio over WebSocket: they hear it at the speed of their own rate, which is 16 kHz by default.

    Raises:
        DeviceError: There is no such file (`.type` "not-found"), it may not be read ("permissions"), or it is no
            audio file or has no audio ("unknown"). The message has advice.
        MissingExtraError: Only soundfile can read the file, and soundfile is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], sample_rate_hz: int | None = None) -> None:
        PATH.check(path=path)
        pcm_tools.RATE.or_none.check(sample_rate_hz=sample_rate_hz)
        self.path: Path = Path(path)
        shown = one_line(str(self.path))
        try:
            # A pipe without a name, as of a shell's <(command), has an end, and does not block when it is opened.
            if self.path.is_fifo() and self.path.resolve().exists():
                raise DeviceError(
                    f"Cannot use the audio file {shown}: it is a named pipe. Write its audio to a file, or, to send it "
                    "as it arrives, in raw 16-bit samples, open the pipe and pass CallbackSource(lambda frames: "
                    "pipe.read(2 * frames), sample_rate_hz=16000)",
                    devices=("mic",),
                )
            with self.path.open("rb") as file:
                self._version = _version_of(os.fstat(file.fileno()))
                data = file.read(MAX_WAV_FILE_BYTES + 1)
        except OSError as error:  # before Python 3.14, is_fifo() raises it for a path that no system allows
            raise file_error(f"Cannot read the audio file {shown}", "mic", error) from error
        try:
            if len(data) > MAX_WAV_FILE_BYTES:
                raise ValueError(
                    f"it is larger than {MAX_WAV_FILE_BYTES >> 20} MiB; split it, or read it with a CallbackSource"
                )
            pcm, rate = decode(data, f"The audio file {shown}")
        except ValueError as error:
            raise DeviceError(f"Cannot use the audio file {shown}: {error}", devices=("mic",)) from error
        if sample_rate_hz not in (None, rate):
            pcm, rate = resample(pcm, rate, sample_rate_hz), sample_rate_hz
        super().__init__(pcm, rate)

    def __repr__(self) -> str:
        return f"WavSource({str(self.path)!r})"

    @property
    def is_outdated(self) -> bool:
        """True if the file has changed since it was read. A missing one or a pipe cannot be read again."""
        if self._version is None:
            return False
        try:
            return _version_of(self.path.stat()) != self._version
        except OSError:
            return False


def _version_of(found: os.stat_result) -> tuple[int, ...] | None:
    """Return the values that change with a file; None if it is no file that can be read again."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


class SilenceSource(MemorySource):
    """A source of endless silence.

    Args:
        sample_rate_hz (hertz): Sample rate.
    """

    def __init__(self, sample_rate_hz: int = 16_000) -> None:
        super().__init__(sample_rate_hz)

    def samples(self, start: int, frames: int) -> bytes:  # noqa: ARG002 - silence is the same at every position
        """Return `frames` samples of silence."""
        return bytes(2 * frames)


class ToneSource(MemorySource):
    """A source of a sine tone.

    Args:
        frequency_hz (hertz): Frequency, rounded to 0.1 Hz. Below half of the sample rate.
        duration (seconds): Length of the tone. None: endless.
        sample_rate_hz (hertz): Sample rate.
        volume: Amplitude from 0 to 1.

    Raises:
        ValueError: An argument is out of range.
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
        """See `MemorySource.samples()`."""
        if self.total_frames is not None:
            frames = max(0, min(frames, self.total_frames - start))
        begin = 2 * start % len(self._table)
        data = self._table[begin : begin + 2 * frames]
        while len(data) < 2 * frames:
            data += self._table[: 2 * frames - len(data)]
        return data


class CallbackSource(PackagedSource):
    """A source that calls a function for audio on its own thread, up to 1 s before the audio is sent.

    Args:
        fn: `fn(frames)` returns up to `frames` samples of PCM and may block; `b""` ends the source. If the function is
            late, silence is sent instead.
        sample_rate_hz (hertz): Sample rate of the audio from `fn`.

    Raises:
        TypeError: `fn` does not take this argument, or is a coroutine or generator function.
    """

    def __init__(self, fn: Callable[[int], bytes], sample_rate_hz: int = 16_000) -> None:
        super().__init__(sample_rate_hz)
        function_taking("frames").check(fn=fn)
        self._fn = fn

    def read(self, frames: int) -> bytes:
        """Call the function."""
        return self._fn(frames)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


# Classes that are read on the scheduler's thread. Subclasses are not, because they may run code of the application.
MEMORY_SOURCES = (BytesSource, WavSource, SilenceSource, ToneSource)


@functools.lru_cache(maxsize=16)
def _sine(tenths_hz: int, sample_rate_hz: int, volume: float) -> bytes:
    # The table holds whole periods, so that it repeats without a click. It is computed once because a sine for every
    # sample would delay the other sessions' sources on the scheduler's thread.
    length = 10 * sample_rate_hz // math.gcd(10 * sample_rate_hz, tenths_hz)
    angle = 2 * math.pi * tenths_hz / (10 * sample_rate_hz)
    return struct.pack(f"<{length}h", *(round(32767 * volume * math.sin(angle * i)) for i in range(length)))
