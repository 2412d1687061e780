"""Audio sinks that need no device."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

from ..concurrency.descriptors import keep_open
from ..errors import DeviceError
from ..protocol.validation import COUNT, PATH, function_taking
from . import pcm as pcm_tools
from .audio_files import check_wav_name, remove_part
from .base import file_error
from .resample import RateConverter


class NullSink:
    """A sink that discards all audio, for clients without a speaker."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Discard the audio."""

    def drop(self) -> None:
        """Do nothing: nothing was kept."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class BytesSink:
    """A sink that keeps the bot's audio in memory, bit exact; further sessions append to it.

    Args:
        max_bytes (bytes): Limit of the kept audio; beyond it the sink ends with a `device_error`.
    """

    def __init__(self, max_bytes: int = 256 * 1024 * 1024) -> None:
        COUNT.check(max_bytes=max_bytes)
        self._max_bytes = max_bytes
        # One thread at a time writes; readers copy the list, which is an atomic operation, so it needs no lock.
        self._chunks: list[bytes] = []
        self._rate: int | None = None
        self._size = 0

    @property
    def pcm(self) -> bytes:
        """All audio received so far. Any thread may read it at any time."""
        return b"".join([*self._chunks])

    @property
    def sample_rate_hz(self) -> int | None:
        """The bot's sample rate; None until audio was received."""
        return self._rate

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append the audio.

        Raises:
            DeviceError: The rate has changed, or the sink is full.
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
        self._chunks.append(pcm)

    def drop(self) -> None:
        """Do nothing: received audio is kept."""

    def close(self) -> None:
        """Do nothing: `pcm` stays readable."""


class WavSink:
    """A sink that writes all of the bot's audio to a WAV file, including interrupted audio.

    The file has the sample rate of the first audio, which it holds bit exact. Later audio of another rate is
    resampled: by soxr if the extra `resample` is installed, else by linear interpolation.

    An existing file is replaced when a new sink first writes: at the first audio, or at the end of the first session. A
    `connect()` that fails does not touch it. Further sessions with the same sink, as all sessions of a client, are
    appended. From then on it is a valid WAV file at any time: even if the process is killed, all but the last 0.25 s of
    the written audio can be read. After each session the file is complete and no descriptor is left open. If the
    application has moved the file away, the next session creates another one. If another file has taken its place, that
    file stays unchanged, and the sink fails.

    Args:
        path: The file to write; its directory must exist. The constructor does not create or change the file.

    Raises:
        ValueError: The name has the ending of another format, such as ``answer.mp3``.
        DeviceError: No file can be written there; `.type` is "not-found", "permissions" or "unknown".
    """

    #: Makes the session pass interrupted audio, too, and several audio frames in one call; see `AudioSink`.
    is_recorder = True

    # Sample rate in the header of a file without audio.
    _DEFAULT_RATE_HZ = 24_000
    # Seconds of audio after which the header is updated.
    _HEADER_LAG = 0.25

    def __init__(self, path: str | os.PathLike[str]) -> None:
        PATH.check(path=path)
        check_wav_name(path)
        self.path: Path = Path(path).absolute()
        _check_writable(self.path)
        self._file: io.FileIO | None = None
        self._created = False
        self._written: os.stat_result  # of the file, once it is created
        self._is_complete = False  # since the last session has ended, nothing was written
        self._converter: RateConverter | None = None  # to the rate of the file
        self._size = 0
        self._size_in_header = 0
        self._is_full = False  # the last write has failed

    def __repr__(self) -> str:
        return f"WavSink({str(self.path)!r})"

    @property
    def lease_key(self) -> str:
        """The file, which one session uses at a time: two sinks would overwrite each other's audio."""
        return os.path.realpath(self.path)

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append to the file.

        Raises:
            DeviceError: The file cannot be written, or it has reached the 4 GiB of the format.
        """
        if self._file is None and self._created and self._is_moved_away():
            self._created, self._converter, self._size = False, None, 0
        if self._converter is None:
            self._converter = RateConverter(sample_rate_hz)
        for part in self._converter.convert_in_parts(pcm, sample_rate_hz):
            self._append(part)

    def drop(self) -> None:
        """Do nothing: received audio is kept."""

    def close(self) -> None:
        """Complete the header and close the file; `write()` opens it again.

        Raises:
            DeviceError: The file cannot be written.
        """
        if self._file is None and (self._created or self._is_full):
            return
        try:
            if self._converter is not None and not self._is_full and (rest := self._converter.finish()):
                self._append(rest)
        finally:
            self._complete()

    def _complete(self) -> None:
        try:
            with self._opened() as file:
                self._file = None
                # Removes the rest of a write that failed halfway, for instance because the disk was full.
                file.truncate(pcm_tools.WAV_HEADER_BYTES + self._size)
                self._write_header(file)
                self._is_complete = True
        except OSError as error:
            raise file_error(f"Cannot complete {self.path}", "speaker", error) from error

    def _append(self, pcm: bytes) -> None:
        if self._size + len(pcm) > pcm_tools.MAX_WAV_DATA_BYTES:
            raise DeviceError(
                f"{self.path} is full: a WAV file holds 4 GiB. Use a new WavSink for further audio",
                devices=("speaker",),
            )
        try:
            file = self._opened()
            # The position is set explicitly because a failed write leaves it behind the end of the audio.
            file.seek(pcm_tools.WAV_HEADER_BYTES + self._size)
            view = memoryview(pcm)
            while view:
                count = file.write(view)
                view = view[count:]
                self._size += count
            self._is_full = False
            if self._size - self._size_in_header >= 2 * self._HEADER_LAG * self._rate:
                # Written after the audio that it counts, so that the file is valid in between.
                self._write_header(file)
        except OSError as error:
            self._is_full = True
            self._size -= self._size % 2
            raise file_error(f"Cannot write {self.path}", "speaker", error) from error

    def _is_moved_away(self) -> bool:
        """Return whether only the file is gone. If its directory is gone, both may return, and the file then grows."""
        try:
            self.path.stat()
        except OSError as error:
            return isinstance(error, FileNotFoundError) and os.path.isdir(_directory_of(self.path))
        return False

    @property
    def _rate(self) -> int:
        return self._DEFAULT_RATE_HZ if self._converter is None else self._converter.to_hz

    def _opened(self) -> io.FileIO:
        if self._file is not None and not _is_file(self._file, self._written):
            keep_open(self._file)  # the application has closed its number, which may be another file's now
            self._file = None
        if self._file is None:
            # A missing file is created. An existing one is truncated only after the header of an empty recording is
            # written, so that it is a valid WAV file at any time.
            create = 0 if self._created else os.O_CREAT
            # Unbuffered, because a forked child would write its copy of a buffer to the file when it exits.
            file = io.FileIO(
                os.fspath(self.path), "r+", opener=lambda path, flags: os.open(path, flags | create, 0o666)
            )
            try:
                if self._created:
                    self._check_identity(file)
                else:
                    self._write_header(file)
                    file.truncate(pcm_tools.WAV_HEADER_BYTES)
                    self._created = True
                self._written, self._is_complete = os.fstat(file.fileno()), False
            except BaseException:
                with file, contextlib.suppress(OSError):
                    # One that is not the recording is left alone, however short it is.
                    if not self._created and os.fstat(file.fileno()).st_size < pcm_tools.WAV_HEADER_BYTES:
                        remove_part(file)
                raise
            self._file = file
        return self._file

    def _check_identity(self, file: io.FileIO) -> None:
        """Raise unless the file is the recording: it has the recording's size, or is the same file, not completed.

        A volume that is mounted again may have another number, and another recording may have taken this one's place.
        """
        found = os.fstat(file.fileno())
        is_whole = found.st_size == pcm_tools.WAV_HEADER_BYTES + self._size
        if not is_whole and (self._is_complete or not os.path.samestat(found, self._written)):
            raise DeviceError(
                f"Cannot append to {self.path}: it is not the file that this WavSink has written. Move it away, or use "
                "a new WavSink with another path",
                devices=("speaker",),
            )

    def _write_header(self, file: io.FileIO) -> None:
        file.seek(0)
        _write_all(file, pcm_tools.wav_header(self._rate, self._size))
        self._size_in_header = self._size


class CallbackSink:
    """A sink that calls a function with the bot's audio, on the threads that run handlers.

    Args:
        fn: `fn(pcm, sample_rate_hz)`; may block, see `AudioSink`.
        on_drop: `on_drop()`, called when the user has interrupted the bot. The audio queued for `fn` is discarded, and
            `fn` should discard its unplayed audio.

    Raises:
        TypeError: A function does not take these arguments, or is a coroutine or generator function.
    """

    def __init__(self, fn: Callable[[bytes, int], object], on_drop: Callable[[], object] | None = None) -> None:
        function_taking("pcm", "sample_rate_hz").check(fn=fn)
        function_taking().or_none.check(on_drop=on_drop)
        self._fn = fn
        self._on_drop = on_drop

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Call the function."""
        self._fn(pcm, sample_rate_hz)

    def drop(self) -> None:
        """Call `on_drop` if it was given."""
        if self._on_drop is not None:
            self._on_drop()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


# Classes that are written on the I/O thread directly. Subclasses are not, because they may run code of the application.
MEMORY_SINKS = (BytesSink, NullSink)


def _check_writable(path: Path) -> None:
    """Raise `DeviceError` unless a file can be written at `path`; change no existing file and leave no new one."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise DeviceError(f"Cannot write {path}: it is no file. Give the path of a WAV file", devices=("speaker",))
        os.close(os.open(path, os.O_RDWR))  # opened, because only the system knows the permissions
    except FileNotFoundError:
        _check_directory(path)
    except OSError as error:
        raise file_error(f"Cannot write {path}", "speaker", error) from error


def _is_file(file: io.FileIO, written: os.stat_result) -> bool:
    """Return whether the number of an open file still belongs to the file that was opened."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), written)
    except OSError:
        return False


def _directory_of(path: Path) -> str:
    return os.path.dirname(os.path.realpath(path))


def _check_directory(path: Path) -> None:
    import tempfile  # imported here because only a file that does not exist yet needs it

    directory = _directory_of(path)
    if not os.path.isdir(directory):
        raise DeviceError(
            f"Cannot write {path}: the directory {directory} does not exist; create it first",
            devices=("speaker",),
            type="not-found",
        )
    try:
        tempfile.TemporaryFile(dir=directory).close()  # has no name where the system supports unnamed files
    except OSError as error:
        raise file_error(f"Cannot create {path}", "speaker", error) from error


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
