"""Sinks that need no device."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

from ..errors import DeviceError
from . import pcm as pcm_tools
from .base import file_error


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
        self._max_bytes = max_bytes
        # Written by one thread at a time; readers copy the list, which is a single operation.
        self._pieces: list[bytes] = []
        self._rate: int | None = None
        self._size = 0

    @property
    def pcm(self) -> bytes:
        """All that was heard so far. May be read from any thread at any time."""
        return b"".join(self._pieces.copy())

    @property
    def sample_rate_hz(self) -> int | None:
        """The bot's rate; None until something was heard."""
        return self._rate

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append.

        Raises:
            DeviceError: the rate has changed, or there is no room.
        """
        if sample_rate_hz != self._rate:
            self._rate = _same_rate(self._rate, sample_rate_hz, "BytesSink")
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
    """Writes the bot's audio to a WAV file, bit exact, on a thread of its own.

    The file is begun anew with the first audio (or the end of the first session), and is complete after each session,
    when no descriptor is left open; further sessions of the same object append to it.

    Args:
        path: the file to write; its directory must exist.

    Raises:
        DeviceError: the directory does not exist; `.type` is "not-found".
    """

    # Written to the header of a file in which nothing was heard.
    _USUAL_RATE_HZ = 24_000

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path).absolute()
        if not self.path.parent.is_dir():
            raise DeviceError(
                f"Cannot write {self.path}: the directory {self.path.parent} does not exist; create it first",
                devices=("speaker",),
                type="not-found",
            )
        self._file: io.FileIO | None = None
        self._created = False
        self._rate: int | None = None
        self._size = 0

    def __repr__(self) -> str:
        return f"WavSink({str(self.path)!r})"

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Append to the file.

        Raises:
            DeviceError: the rate has changed, the file cannot be written, or it has reached the 4 GiB of the format.
        """
        rate = _same_rate(self._rate, sample_rate_hz, "WavSink")
        if self._size + len(pcm) > pcm_tools.MAX_WAV_DATA_BYTES:
            raise DeviceError(f"{self.path} is full: a WAV file holds 4 GiB", devices=("speaker",))
        try:
            _write_all(self._opened(), pcm)
        except OSError as error:
            raise file_error(f"Cannot write {self.path}", "speaker", error) from error
        self._rate = rate
        self._size += len(pcm)

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
            with self._opened() as file:
                self._file = None
                # A piece that was cut off, say by a full disk, is not part of the recording.
                file.truncate(pcm_tools.WAV_HEADER_BYTES + self._size)
                file.seek(0)
                _write_all(file, pcm_tools.wav_header(self._rate or self._USUAL_RATE_HZ, self._size))
        except OSError as error:
            raise file_error(f"Cannot complete {self.path}", "speaker", error) from error

    def _opened(self) -> io.FileIO:
        if self._file is None:
            # Unbuffered: a forked child must not write its copy of a buffer into the file when it exits.
            self._file = io.FileIO(self.path, "r+" if self._created else "w")
            self._created = True
            self._file.seek(pcm_tools.WAV_HEADER_BYTES + self._size)
        return self._file


class CallbackSink:
    """Calls a function with the bot's audio, on a thread of its own.

    Args:
        fn: `fn(pcm, sample_rate_hz)`; may block, see `AudioSink`.
    """

    def __init__(self, fn: Callable[[bytes, int], object]) -> None:
        self._fn = fn

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Call the function."""
        self._fn(pcm, sample_rate_hz)

    def drop(self) -> None:
        """The function cannot take anything back."""

    def close(self) -> None:
        """Nothing to close."""


# Written on the io thread directly. Their subclasses are not: those may hold code of the user.
MEMORY_SINKS = (BytesSink, NullSink)


def _same_rate(known: int | None, rate_hz: int, sink: str) -> int:
    if known is not None and known != rate_hz:
        raise DeviceError(
            f"The bot's sample rate changed from {known} to {rate_hz} Hz; one {sink} holds one rate, "
            "so use a new one, or a CallbackSink",
            devices=("speaker",),
        )
    return rate_hz


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
