"""Sinks that need no device."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

from ..concurrency.descriptors import DescriptorGuard, keep_open
from ..errors import DeviceError
from ..protocol.validation import COUNT, FUNCTION, PATH
from . import pcm as pcm_tools
from .base import file_error
from .resample import LinearResampler, Resampler, resampler_of


class NullSink:
    """Plays nothing; says that no speaker is wanted."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Forget it."""

    def drop(self) -> None:
        """There is nothing to drop."""

    def close(self) -> None:
        """There is nothing to close."""


class BytesSink:
    """Keeps the bot's audio in memory, bit exact; further sessions append to it.

    Args:
        max_bytes: beyond it the sink ends with a `device_error`.
    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        COUNT.check(max_bytes=max_bytes)
        self._max_bytes = max_bytes
        # Written by one thread at a time; readers copy the list, which is a single operation.
        self._pieces: list[bytes] = []
        self._rate: int | None = None
        self._size = 0

    @property
    def pcm(self) -> bytes:
        """All that was heard so far. May be read from any thread at any time."""
        return b"".join([*self._pieces])

    @property
    def sample_rate_hz(self) -> int | None:
        """The bot's rate; None until something was heard."""
        return self._rate

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append.

        Raises:
            DeviceError: the rate has changed, or there is no room.
        """
        if self._rate is None:
            self._rate = sample_rate_hz
        elif sample_rate_hz != self._rate:
            raise DeviceError(
                f"The bot's sample rate changed from {self._rate} to {sample_rate_hz} Hz; one BytesSink holds one "
                "rate, so use a new one, a WavSink or a CallbackSink",
                devices=("speaker",),
            )
        size = self._size + len(pcm)
        if size > self._max_bytes:
            raise DeviceError(f"This BytesSink is full ({self._max_bytes} bytes); use a WavSink", devices=("speaker",))
        self._size = size
        self._pieces.append(pcm)

    def drop(self) -> None:
        """Keep what was heard."""

    def close(self) -> None:
        """Nothing to close; `pcm` stays."""


class WavSink:
    """Writes all of the bot's audio to a WAV file, on a thread of its own; also what an interruption voids.

    The file has the rate of the first audio, which it holds bit exact. Audio of another rate that comes later is
    resampled: by soxr where the extra `resample` is installed, else by linear interpolation.

    The first audio, or the end of the first session, creates the file or overwrites it. From then on it is a valid WAV
    file at any moment, also if the process is killed: all but the last 0.25 s that were written can be read. After each
    session the file is complete and no descriptor is left open; further sessions of the same object append to it.

    Args:
        path: the file to write; its directory must exist. The constructor neither creates nor changes the file.

    Raises:
        DeviceError: no file can be written there; `.type` is "not-found", "permissions" or "unknown".
    """

    #: Gets what an interruption voids too, and several audio frames in one call. See `AudioSink`.
    is_recorder = True

    # Written to the header of a file in which nothing was heard.
    _USUAL_RATE_HZ = 24_000
    # The header is renewed when it lacks so much.
    _HEADER_LAG = 0.25

    def __init__(self, path: str | os.PathLike[str]) -> None:
        PATH.check(path=path)
        self.path: Path = Path(path).absolute()
        _check_writable(self.path)
        self._file: io.FileIO | None = None
        self._guard: DescriptorGuard  # of that file, while there is one
        self._created = False
        self._rate: int | None = None
        self._resampler: Resampler | LinearResampler | None = None
        self._size = 0
        self._size_in_header = 0

    def __repr__(self) -> str:
        return f"WavSink({str(self.path)!r})"

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append to the file.

        Raises:
            DeviceError: the file cannot be written, or it has reached the 4 GiB of the format.
        """
        if self._rate is None:
            self._rate = sample_rate_hz
        if sample_rate_hz == self._rate and self._resampler is None:
            self._append(pcm)
            return
        # In pieces: a bot that names a low rate must not make a large block of its audio hundreds of times as large.
        size = 2 * sample_rate_hz
        for begin in range(0, len(pcm), size):
            self._append(self._at_the_rate_of_the_file(pcm[begin : begin + size], sample_rate_hz))

    def drop(self) -> None:
        """Keep what was heard."""

    def close(self) -> None:
        """Complete the header and close the file; `write()` opens it again.

        Raises:
            DeviceError: the file cannot be written.
        """
        if self._file is None and self._created:
            return
        try:
            if self._resampler is not None:
                resampler, self._resampler = self._resampler, None
                self._append(resampler.finish())
        finally:
            self._complete()

    def _complete(self) -> None:
        try:
            with self._opened() as file:
                self._file = None
                # A piece that was cut off, say by a full disk, is not part of the recording.
                file.truncate(pcm_tools.WAV_HEADER_BYTES + self._size)
                self._write_header(file)
        except OSError as error:
            raise file_error(f"Cannot complete {self.path}", "speaker", error) from error

    def _append(self, pcm: bytes) -> None:
        if self._size + len(pcm) > pcm_tools.MAX_WAV_DATA_BYTES:
            raise DeviceError(f"{self.path} is full: a WAV file holds 4 GiB", devices=("speaker",))
        try:
            file = self._opened()
            # Where the audio ends, which is not where a write ended that failed.
            file.seek(pcm_tools.WAV_HEADER_BYTES + self._size)
            _write_all(file, pcm)
            self._size += len(pcm)
            if self._size - self._size_in_header >= 2 * self._HEADER_LAG * (self._rate or 0):
                # After the audio that it counts: the file is valid in between.
                self._write_header(file)
        except OSError as error:
            raise file_error(f"Cannot write {self.path}", "speaker", error) from error

    def _at_the_rate_of_the_file(self, pcm: bytes, sample_rate_hz: int) -> bytes:
        rest = b""
        if self._resampler is not None and self._resampler.from_hz != sample_rate_hz:
            rest, self._resampler = self._resampler.finish(), None
        if sample_rate_hz == self._rate or self._rate is None:
            return rest + pcm
        if self._resampler is None:
            self._resampler = resampler_of(sample_rate_hz, self._rate)
        return rest + self._resampler.convert(pcm)

    def _opened(self) -> io.FileIO:
        if self._file is not None and not self._guard.intact:
            keep_open(self._file)
            self._file = None
        if self._file is None:
            # Not truncated, but created if need be: before it is empty it is given the header of an empty recording.
            create = 0 if self._created else os.O_CREAT
            # Unbuffered: a forked child must not write its copy of a buffer into the file when it exits.
            file = io.FileIO(
                os.fspath(self.path), "r+", opener=lambda path, flags: os.open(path, flags | create, 0o666)
            )
            try:
                if not self._created:
                    self._write_header(file)
                    file.truncate(pcm_tools.WAV_HEADER_BYTES)
                    self._created = True
            except BaseException:
                file.close()
                raise
            self._file, self._guard = file, DescriptorGuard(file)
        return self._file

    def _write_header(self, file: io.FileIO) -> None:
        file.seek(0)
        _write_all(file, pcm_tools.wav_header(self._rate or self._USUAL_RATE_HZ, self._size))
        self._size_in_header = self._size


class CallbackSink:
    """Calls a function with the bot's audio, on a thread of its own.

    Args:
        fn: `fn(pcm, sample_rate_hz)`; may block, see `AudioSink`.
        on_drop: `on_drop()` is called on the same thread when the user has interrupted the bot: what still waited for
            `fn` is gone, and what it has got is not to be heard any more.

    Raises:
        TypeError: one of them cannot be called, or is a coroutine function.
    """

    def __init__(self, fn: Callable[[bytes, int], object], on_drop: Callable[[], object] | None = None) -> None:
        FUNCTION.check(fn=fn)
        FUNCTION.or_none.check(on_drop=on_drop)
        self._fn = fn
        self._on_drop = on_drop

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Call the function."""
        self._fn(pcm, sample_rate_hz)

    def drop(self) -> None:
        """Call `on_drop`, if there is one."""
        if self._on_drop is not None:
            self._on_drop()

    def close(self) -> None:
        """Nothing to close."""


# Written on the io thread directly. Their subclasses are not: those may hold code of the user.
MEMORY_SINKS = (BytesSink, NullSink)


def _check_writable(path: Path) -> None:
    """Raise `DeviceError` unless a file can be written there. A file that exists is not changed, and none is left."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DeviceError(f"Cannot write {path}: it is no file. Give the path of a WAV file", devices=("speaker",))
        os.close(os.open(path, os.O_RDWR))  # what the system lets this user do is known only to the system
    except FileNotFoundError:
        _check_directory(path)
    except OSError as error:
        raise file_error(f"Cannot write {path}", "speaker", error) from error


def _check_directory(path: Path) -> None:
    import tempfile  # only for a file that does not exist yet

    directory = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(directory):
        raise DeviceError(
            f"Cannot write {path}: the directory {directory} does not exist; create it first",
            devices=("speaker",),
            type="not-found",
        )
    try:
        tempfile.TemporaryFile(dir=directory).close()  # without a name, where the system has such files
    except OSError as error:
        raise file_error(f"Cannot create {path}", "speaker", error) from error


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
