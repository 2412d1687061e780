"""Recording of both sides on one time line, written as a WAV file: the user left, the bot right."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import attrs

from rtvi_sync.media import AudioFrame, TrackFrames, Tracks
from rtvi_sync.media.audio_files import write_wav
from rtvi_sync.media.resample import resample

# Seconds by which a frame may be late and still continue the frame before it: a gap of a few milliseconds would click.
JITTER_TOLERANCE = 0.05
# A file with both voices has at most this rate, whatever a bot sends.
_MAX_RATE_HZ = 48_000


class Recorder:
    """Recorder of the audio of both tracks, session after session. Its methods may be called on any thread.

    Args:
        limit: how many seconds are kept, the last ones.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        # By track id. Only single dict operations touch them, which are atomic.
        self._user: dict[str, TrackFrames[AudioFrame]] = {}
        self._bot: dict[str, TrackFrames[AudioFrame]] = {}

    def attach(self, tracks: Tracks) -> None:
        """Record these tracks from now on; idempotent for tracks that are being recorded.

        Args:
            tracks: of a connected session.
        """
        for readers, track in ((self._user, tracks.local.audio), (self._bot, tracks.bot.audio)):
            if track is not None and track.id not in readers:
                self._evict(readers)
                readers.setdefault(track.id, track.frames(buffer=self._limit))

    def _evict(self, readers: dict[str, TrackFrames[AudioFrame]]) -> None:
        """Remove the sessions beyond the limit, and those without audio."""
        kept = 0.0
        for id_, reader in reversed(list(readers.items())):
            seconds = sum(frame.duration for frame in reader.queued())
            kept += seconds
            if not seconds or kept > self._limit:
                readers.pop(id_, None)

    def frames(self) -> tuple[list[AudioFrame], list[AudioFrame]]:
        """Return the audio of the last seconds: the user's frames and the bot's."""
        user, bot = (
            [frame for reader in list(readers.values()) for frame in reader.queued()]
            for readers in (self._user, self._bot)
        )
        # A reader keeps as much audio, and of a side that says little that reaches far back.
        begin = max((side[-1].timestamp for side in (user, bot) if side), default=0.0) - self._limit
        user, bot = ([frame for frame in side if frame.timestamp >= begin] for side in (user, bot))
        return user, bot

    def stop(self) -> tuple[list[AudioFrame], list[AudioFrame]]:
        """Stop recording, and return what was recorded, as `frames()` does from now on."""
        for reader in (*self._user.values(), *self._bot.values()):
            reader.close()
        return self.frames()


@attrs.define
class AudioSegment:
    """Audio without a gap: when it begins, its samples, and their number per second."""

    start: float
    pcm: bytearray
    sample_rate_hz: int

    @property
    def end(self) -> float:
        """Return when its last sample was played."""
        return self.start + len(self.pcm) / 2 / self.sample_rate_hz


def simulate_playback(frames: Iterable[AudioFrame], interruptions: Iterable[float] = ()) -> list[AudioSegment]:
    """Return what a speaker plays that receives these frames at their timestamps.

    A frame that arrives before the end of the audio that is playing is played after it.

    Args:
        frames: in the order of their timestamps.
        interruptions: when the bot was interrupted: audio that had arrived and was not yet played is dropped.
    """
    segments: list[AudioSegment] = []
    pending = sorted(interruptions)
    for frame in frames:
        while pending and pending[0] <= frame.timestamp:
            _cut_at(segments, pending.pop(0))
        end = segments[-1].end if segments else frame.timestamp
        if (
            segments
            and segments[-1].sample_rate_hz == frame.sample_rate_hz
            and frame.timestamp - end < JITTER_TOLERANCE
        ):
            segments[-1].pcm += frame.pcm
        else:
            segments.append(AudioSegment(max(frame.timestamp, end), bytearray(frame.pcm), frame.sample_rate_hz))
    for interruption in pending:
        _cut_at(segments, interruption)
    return segments


def _cut_at(segments: list[AudioSegment], moment: float) -> None:
    while segments and segments[-1].start >= moment:
        segments.pop()
    if segments:
        del segments[-1].pcm[2 * round((moment - segments[-1].start) * segments[-1].sample_rate_hz) :]


def write_conversation(path: Path, user: Sequence[AudioSegment], bot: Sequence[AudioSegment]) -> bool:
    """Write both sides as a stereo WAV file at the rate that most of the bot's audio has, 48 kHz at most.

    Args:
        path: of the file, which is overwritten.
        user, bot: in the order of time.

    Returns:
        Whether there was audio; else no file is written.

    Raises:
        OSError: the file cannot be written; if the disk is full, it has what could be written.
    """
    if not user and not bot:
        return False
    origin = min(segment.start for segment in (*user, *bot))
    rate = min(_usual_rate(bot or user), _MAX_RATE_HZ)
    left, right = (render(side, origin, rate) for side in (user, bot))
    length = max(len(left), len(right))
    stereo = bytearray(2 * length)
    for channel, pcm in enumerate((left, right)):
        padded = pcm.ljust(length, b"\0")
        stereo[2 * channel :: 4], stereo[2 * channel + 1 :: 4] = padded[::2], padded[1::2]
    write_wav(path, stereo, rate, channels=2)
    return True


def _usual_rate(segments: Sequence[AudioSegment]) -> int:
    """Return the sample rate that most of the audio has."""
    seconds: defaultdict[int, float] = defaultdict(float)
    for segment in segments:
        seconds[segment.sample_rate_hz] += len(segment.pcm) / segment.sample_rate_hz
    return max(seconds, key=seconds.__getitem__)


def render(segments: Sequence[AudioSegment], origin: float, rate: int) -> bytes:
    """Return the samples of one side on a time line, with silence in the gaps.

    Args:
        segments: in the order of time.
        origin: when the time line begins.
        rate: of the time line, in samples per second; segments of other rates are resampled.
    """
    samples = bytearray()
    for segment in segments:
        pcm = bytes(segment.pcm)
        if segment.sample_rate_hz != rate:
            pcm = resample(pcm, segment.sample_rate_hz, rate)
        begin = 2 * round((segment.start - origin) * rate)
        del samples[begin:]  # by rounding, two segments may share a sample
        samples += bytes(begin - len(samples)) + pcm
    return bytes(samples)
