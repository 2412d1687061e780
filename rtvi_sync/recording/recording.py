"""Keeps what both sides say on one time line and writes it as a WAV file: left the user, right the bot."""

from __future__ import annotations

import importlib
import wave
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs

from rtvi_sync.media import AudioFrame, TrackFrames, Tracks

# A frame that is late by less continues the one before: that is jitter, and a hole of some milliseconds would click.
JITTER = 0.05

Resample = Callable[[bytes, int, int], bytes]


class Recorder:
    """Takes in the audio of both tracks, session after session. Its methods may be called on any thread.

    Args:
        limit: seconds of audio that are kept on each side: of the latest session, and as much again of those before.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        # By the ids of the tracks. Touched by single operations of dict only, which are atomic.
        self._user: dict[str, TrackFrames[AudioFrame]] = {}
        self._bot: dict[str, TrackFrames[AudioFrame]] = {}

    def attach(self, tracks: Tracks) -> None:
        """Record these tracks from now on. Tracks that are being recorded already go on.

        Args:
            tracks: of a session that is connected.
        """
        for readers, track in ((self._user, tracks.local.audio), (self._bot, tracks.bot.audio)):
            if track is not None and track.id not in readers:
                self._forget(readers)
                readers.setdefault(track.id, track.frames(buffer=self._limit))

    def _forget(self, readers: dict[str, TrackFrames[AudioFrame]]) -> None:
        """Make room: forget the sessions that lie too far back, and those without audio."""
        kept = 0.0
        for id_, reader in reversed(list(readers.items())):
            seconds = sum(frame.duration for frame in reader.queued())
            kept += seconds
            if not seconds or kept > self._limit:
                readers.pop(id_, None)

    def frames(self) -> tuple[list[AudioFrame], list[AudioFrame]]:
        """What was recorded so far: the frames of the user and those of the bot."""
        user, bot = (
            [frame for reader in list(readers.values()) for frame in reader.queued()]
            for readers in (self._user, self._bot)
        )
        return user, bot

    def stop(self) -> tuple[list[AudioFrame], list[AudioFrame]]:
        """Record no more. Returns what was recorded, as `frames()` does from now on."""
        for reader in (*self._user.values(), *self._bot.values()):
            reader.close()
        return self.frames()


@attrs.define
class Stretch:
    """Audio without a gap: when it begins, its samples, and how many there are per second."""

    start: float
    pcm: bytearray
    sample_rate_hz: int

    @property
    def end(self) -> float:
        """When its last sample was played."""
        return self.start + len(self.pcm) / 2 / self.sample_rate_hz


def played(frames: Iterable[AudioFrame], drops: Iterable[float] = ()) -> list[Stretch]:
    """What a loudspeaker plays that gets these frames at their timestamps.

    What comes before the end of what is playing is played after it.

    Args:
        frames: in the order of their timestamps.
        drops: when the bot was interrupted: what had come and was not yet played is forgotten.
    """
    line: list[Stretch] = []
    interruptions = sorted(drops)
    for frame in frames:
        while interruptions and interruptions[0] <= frame.timestamp:
            _drop(line, interruptions.pop(0))
        end = line[-1].end if line else frame.timestamp
        if line and line[-1].sample_rate_hz == frame.sample_rate_hz and frame.timestamp - end < JITTER:
            line[-1].pcm += frame.pcm
        else:
            line.append(Stretch(max(frame.timestamp, end), bytearray(frame.pcm), frame.sample_rate_hz))
    for interruption in interruptions:
        _drop(line, interruption)
    return line


def _drop(line: list[Stretch], moment: float) -> None:
    while line and line[-1].start >= moment:
        line.pop()
    if line:
        del line[-1].pcm[2 * round((moment - line[-1].start) * line[-1].sample_rate_hz) :]


def write_conversation(
    path: Path, user: Sequence[Stretch], bot: Sequence[Stretch], resample: Resample | None = None
) -> list[Path]:
    """Write what both said as a stereo WAV file at the bot's sample rate.

    Args:
        path: of the file, which is overwritten.
        user, bot: in the order of time.
        resample: `resample(pcm, from_rate_hz, to_rate_hz)`, for stretches of several sample rates. None: those are
            written as one mono file for each side and rate instead; all of them begin at the same moment.

    Returns:
        The files that were written; none if nothing was said.

    Raises:
        OSError: a file cannot be written.
    """
    origin = min((stretch.start for stretch in (*user, *bot)), default=0.0)
    rates = {stretch.sample_rate_hz for stretch in (*user, *bot)}
    if not rates:
        return []
    if len(rates) > 1 and resample is None:
        return _write_apart(path, {"user": user, "bot": bot}, origin)
    # A bot that changes its rate is rare, and all of them are its own.
    rate = (bot or user)[-1].sample_rate_hz
    left, right = (lay(side, origin, rate, resample) for side in (user, bot))
    length = max(len(left), len(right))
    stereo = bytearray(2 * length)
    for channel, pcm in enumerate((left, right)):
        padded = pcm.ljust(length, b"\0")
        stereo[2 * channel :: 4], stereo[2 * channel + 1 :: 4] = padded[::2], padded[1::2]
    _write(path, bytes(stereo), rate, channels=2)
    return [path]


def find_resampler() -> Resample | None:
    """The one of the extra "resample", or None if that is not installed."""
    try:
        soxr, numpy = importlib.import_module("soxr"), importlib.import_module("numpy")
    except ModuleNotFoundError:
        return None

    def resample(pcm: bytes, old_rate: int, new_rate: int) -> bytes:
        samples = numpy.frombuffer(pcm, "<i2").astype(numpy.int16)
        result: Any = soxr.resample(samples, old_rate, new_rate)
        return bytes(result.astype("<i2").tobytes())

    return resample


def lay(side: Sequence[Stretch], origin: float, rate: int, resample: Resample | None = None) -> bytes:
    """The samples of one side on a time line.

    Args:
        side: in the order of time.
        origin: when the line begins.
        rate: of the line, in samples per second.
        resample: for stretches of another rate; needed only if there are any.
    """
    line = bytearray()
    for stretch in side:
        pcm = bytes(stretch.pcm)
        if stretch.sample_rate_hz != rate:
            assert resample is not None, "the caller has seen to it"
            pcm = resample(pcm, stretch.sample_rate_hz, rate)
        begin = 2 * round((stretch.start - origin) * rate)
        del line[begin:]  # by rounding, two stretches may share a sample
        line += bytes(begin - len(line)) + pcm
    return bytes(line)


def _write_apart(path: Path, sides: dict[str, Sequence[Stretch]], origin: float) -> list[Path]:
    written = []
    for name, side in sides.items():
        for rate in sorted({stretch.sample_rate_hz for stretch in side}):
            own = [stretch for stretch in side if stretch.sample_rate_hz == rate]
            written.append(path.with_name(f"{path.stem}-{name}-{rate}{path.suffix}"))
            _write(written[-1], lay(own, origin, rate), rate, channels=1)
    return written


def _write(path: Path, pcm: bytes, rate: int, *, channels: int) -> None:
    with path.open("wb") as file:
        write_wav(file, pcm, rate, channels=channels)


def write_wav(file: BinaryIO, pcm: bytes, rate: int, *, channels: int = 1) -> None:
    """Write a WAV file of 16-bit PCM to an open file."""
    with wave.open(file, "wb") as recording:
        recording.setparams((channels, 2, rate, 0, "NONE", ""))
        recording.writeframes(pcm)
