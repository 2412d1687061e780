"""A WAV file of a conversation: the user left, the bot right, valid whenever the process is killed."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Final

from . import pcm as pcm_tools
from .resample import RateConverter

# Seconds by which a frame may be late and still continue the frame before it: a gap of a few milliseconds would click.
JITTER: Final = 0.05
# Seconds that a bot may send ahead.
_MAX_AHEAD = 60.0
# Seconds without a frame after which a converter returns its rest: less than the lag of `StereoFile`.
_STALE = 0.1
_FRAME_BYTES = 4
_MAX_BYTES: Final = pcm_tools.WAV_HEADER_BYTES + pcm_tools.MAX_WAV_DATA_BYTES


class StereoChannel:
    """The audio of one side that is not in the file yet, with each frame at its place. Places are samples of the file.

    A frame within 50 ms of the end of the audio before it continues that audio. The bot's frames are played one after
    the other: an earlier frame also continues the audio, and a later one leaves silence before it. The user's frames
    are heard as they arrive, so beyond 50 ms they are moved to their time of arrival in either direction. Otherwise two
    clocks would drift apart.

    Args:
        rate_hz: Sample rate of the file.
        is_user: True for the user's audio, False for the bot's.
    """

    def __init__(self, rate_hz: int, *, is_user: bool) -> None:
        self._rate = rate_hz
        self._is_user = is_user
        self._converter = RateConverter(rate_hz)
        self._pcm = bytearray()  # from `first` on
        #: The first place that is not in the file.
        self.first: int = 0
        #: The place behind the last frame.
        self.end: int = 0
        # The run of frames without a gap: where it starts, its rate, and how many samples it has taken and made.
        self._start = self._source_rate = self._taken = self._made = 0

    def place(self, t: float, pcm: bytes, rate_hz: int) -> tuple[int, int] | None:
        """Place a frame; return its place and its length, or None if it is too far ahead, and lost.

        Args:
            t: Time of arrival, in seconds since the start of the file.
            pcm: Samples of the frame.
            rate_hz: Sample rate of the frame.
        """
        due = round(t * self._rate)
        gap = due - self.end
        if -gap > _MAX_AHEAD * self._rate:
            return None
        moves = gap > JITTER * self._rate or (self._is_user and -gap > JITTER * self._rate)
        if moves or rate_hz != self._source_rate:
            self.finish_run()
            self._start = self.end = max(due if moves else self.end, self.first)
            del self._pcm[2 * (self.end - self.first) :]  # a user's frame that is moved back replaces the audio there
            self._source_rate, self._taken, self._made = rate_hz, 0, 0
        begin = self.end
        self._taken += len(pcm) // 2
        self.end = self._start + round(self._taken * self._rate / rate_hz)
        self._put(self._converter.convert(pcm, rate_hz))
        return begin, self.end - begin

    def _put(self, pcm: bytes) -> None:
        offset = 2 * (self._start + self._made - self.first)
        self._made += len(pcm) // 2
        self._pcm += bytes(max(0, offset - len(self._pcm)))
        self._pcm += pcm[max(0, -offset) :]  # audio that is too late for its place is left out

    def finish_run(self) -> None:
        """Take the rest of the audio from the converter. The next frame starts a run."""
        if self._source_rate:
            rest = self._converter.finish()
            missing = 2 * (self.end - self._start - self._made)
            self._put(rest[:missing].ljust(missing, b"\0"))
            self._source_rate = 0

    def cut(self, t: float) -> int:
        """Drop the audio that would have been heard after `t`; return the number of its samples."""
        place = max(round(t * self._rate), self.first)
        if place >= self.end:
            return 0
        self.finish_run()
        dropped, self.end = self.end - place, place
        del self._pcm[2 * (place - self.first) :]
        return dropped

    def take(self, until: int) -> bytes:
        """Return the audio from `first` to a place, which becomes `first`. Silence at its end is left out."""
        if self.end < until + _STALE * self._rate:
            self.finish_run()
        size = 2 * (until - self.first)
        taken = bytes(self._pcm[:size])
        del self._pcm[:size]
        self.first = until
        return taken


class StereoFile:
    """A WAV file of 16 bit that is written from start to end, both sides at the same time.

    `write()` takes the time up to which to write, because frames may still arrive for the last moments. The silence
    before a frame takes no room on the disk, where the system supports that.

    Args:
        path: Path of the file, which must not exist.
        rate_hz: Sample rate of both channels.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path, rate_hz: int) -> None:
        self.rate_hz: int = rate_hz
        self.user: StereoChannel = StereoChannel(rate_hz, is_user=True)
        self.bot: StereoChannel = StereoChannel(rate_hz, is_user=False)
        #: Bytes of the file.
        self.size: int = 0
        # Unbuffered: a buffer would be lost with the process, and a forked child would write its copy of it.
        self.file: io.FileIO = create(path)
        self._write_header(0)

    @property
    def written(self) -> int:
        """The place up to which the file has all audio."""
        return self.user.first

    def write(self, until: float, max_bytes: int = _MAX_BYTES) -> bool:
        """Write the audio up to a time, then the sizes in the header; return whether there was room for it.

        Args:
            until: Seconds since the start of the file. No frame may be placed before it any more.
            max_bytes: Limit of the file's size.

        Raises:
            OSError: The file cannot be written. Its earlier content is still a valid file.
        """
        return self._write(max(self.written, int(until * self.rate_hz)), max_bytes)

    def close(self, max_bytes: int = _MAX_BYTES) -> bool:
        """Write the rest of the audio, and close the file; return whether there was room for it.

        Raises:
            OSError: The file cannot be written.
        """
        with self.file:
            for channel in (self.user, self.bot):
                channel.finish_run()
            return self._write(max(self.written, self.user.end, self.bot.end), max_bytes)

    def _write(self, place: int, max_bytes: int) -> bool:
        first, wanted = self.written, place
        room = min(max_bytes, _MAX_BYTES) - pcm_tools.WAV_HEADER_BYTES
        place = min(place, max(first, room // _FRAME_BYTES))
        left, right = self.user.take(place), self.bot.take(place)
        length = max(len(left), len(right))
        if length:
            stereo = bytearray(2 * length)
            for channel, pcm in enumerate((left, right)):
                end = 2 * len(pcm)
                stereo[2 * channel : end : 4], stereo[2 * channel + 1 : end : 4] = pcm[::2], pcm[1::2]
            self.file.seek(pcm_tools.WAV_HEADER_BYTES + _FRAME_BYTES * first)
            try:
                write_all(self.file, stereo)
            finally:  # a full disk has taken the first part
                data_bytes = self.file.tell() - pcm_tools.WAV_HEADER_BYTES
                self._write_header(data_bytes // _FRAME_BYTES * _FRAME_BYTES)
        return place == wanted

    def _write_header(self, data_bytes: int) -> None:
        self.file.seek(0)
        write_all(self.file, pcm_tools.wav_header(self.rate_hz, data_bytes, channels=2))
        self.size = pcm_tools.WAV_HEADER_BYTES + data_bytes


def create(path: Path) -> io.FileIO:
    """Create a file that only this user may read, and return it unbuffered.

    Raises:
        FileExistsError: The file exists.
        OSError: The file cannot be created.
    """
    return io.FileIO(os.fspath(path), "x", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_all(file: io.FileIO, data: bytes | bytearray) -> None:
    """Write all of the data.

    Raises:
        OSError: Not all could be written.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
