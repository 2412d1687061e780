"""The tracks: readable copies of the media that is sent to and received from the bot."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, Literal

import attrs

from ..protocol.record import Record
from ..protocol.validation import COUNT, SECONDS
from .base import AudioFrame, AudioQueue, F, FrameQueue, VideoFrame, VideoQueue


class TrackFrames(Iterator[F]):
    """The frames of a track for one reader, from now on. Made by `AudioTrack.frames()` and `VideoTrack.frames()`.

    The iteration blocks until the next frame arrives and ends with the track. It may run on any thread, but on one at a
    time.
    """

    def __init__(self, queue: FrameQueue[F]) -> None:
        self._queue = queue

    @property
    def dropped(self) -> int:
        """The number of frames that this reader lost because it was too slow."""
        return self._queue.dropped

    def queued(self) -> list[F]:
        """Return the frames that have arrived and that the iteration has not returned yet; it still will.

        Does not block, and may be called from any thread. A reader that never iterates keeps the latest frames, as many
        as the `buffer` holds.
        """
        return self._queue.queued()

    def take(self) -> list[F]:
        """Return the frames that have arrived and that the iteration has not returned yet; it no longer will.

        Does not block; called on the thread that iterates.
        """
        return self._queue.get_queued()

    def shrink(self, buffer: float, burst: float = 0.0) -> None:
        """Keep no more than `buffer` from now on. Called by the session.

        Frames that have arrived within as many seconds as `buffer` may exceed it, up to `burst`.
        """
        self._queue.shrink(buffer, burst)

    def __next__(self) -> F:
        frame = self._queue.get()
        if frame is None:
            raise StopIteration
        return frame

    def close(self) -> None:
        """Take no more frames; the iteration ends after those that have arrived. May be called from any thread."""
        self._queue.end()


class Track(Generic[F]):
    """Audio or video in one direction, from the moment the session has it until it ends.

    An `AudioTrack` has `AudioFrame`s, a `VideoTrack` has `VideoFrame`s. Any number of readers, each on its own thread,
    get all of them.

    Attributes:
        id: Unique name.
        kind: "audio" or "video".
        label: Display name of its origin; set by the session.
    """

    kind: Literal["audio", "video"]

    def __init__(self, *, label: str, enabled: Callable[[], bool] = lambda: True) -> None:
        self.id: str = os.urandom(16).hex()
        self.label = label
        self._enabled = enabled
        #: The readers by identity; a track without readers need not publish.
        # There is no lock because a signal handler could wait for it on the reader's thread while that thread holds it.
        # The dict is changed by atomic operations and iterated in copies.
        self.readers: dict[int, weakref.ref[TrackFrames[F]]] = {}
        self._ended = False

    def __repr__(self) -> str:
        return f"<Track {self.kind} {self.label!r} {self.ready_state}>"

    @property
    def enabled(self) -> bool:
        """False while the microphone is muted, the camera is off, or a device has failed."""
        return self._enabled()

    @property
    def ready_state(self) -> Literal["live", "ended"]:
        """The state: "live" until the session has ended or the device is closed for good, then "ended"."""
        return "ended" if self._ended else "live"

    def end(self) -> None:
        """End the track and the iterations of its readers; called by the session."""
        self._ended = True
        for reference in self.readers.copy().values():
            if (reader := reference()) is not None:
                reader.close()
        self.readers.clear()

    def _read(self, queue: FrameQueue[F]) -> TrackFrames[F]:
        frames = TrackFrames(queue)
        key, readers = id(frames), self.readers
        readers[key] = weakref.ref(frames, lambda _: readers.pop(key, None))
        if self._ended:  # a concurrent `end()` may have missed this reader
            frames.close()
        return frames

    def _hand_out(self, frame: F) -> None:
        for reference in self.readers.copy().values():
            if (reader := reference()) is not None:
                reader._queue.put(frame)


class AudioTrack(Track[AudioFrame]):
    """A track of audio."""

    kind: Literal["audio", "video"] = "audio"

    def frames(self, *, buffer: float = 120.0) -> TrackFrames[AudioFrame]:
        """Iterate over the frames from now on; call it once for each reader, from any thread.

        Args:
            buffer (seconds): Audio that a reader may lag behind before it loses the oldest frames (`.dropped`).
        """
        SECONDS.check(buffer=buffer)
        return self._read(AudioQueue(buffer))

    def publish(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand an audio frame to all readers; called by the session on one thread, does not block."""
        self._hand_out(AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=timestamp))


class VideoTrack(Track[VideoFrame]):
    """A track of video."""

    kind: Literal["audio", "video"] = "video"

    def frames(self, *, buffer: int = 10) -> TrackFrames[VideoFrame]:
        """Iterate over the frames from now on; call it once for each reader, from any thread.

        Args:
            buffer: Frames that a reader may lag behind before it loses the oldest (`.dropped`). With 1 the next frame
                is always the newest. A frame of 640 x 480 pixels takes 0.9 MB.
        """
        COUNT.check(buffer=buffer)
        return self._read(VideoQueue(buffer))

    def publish(self, frame: VideoFrame) -> None:
        """Hand an image to all readers; called by the session on one thread, does not block."""
        self._hand_out(frame)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ParticipantTracks(Record):
    """The tracks of one participant; None for an absent track."""

    audio: AudioTrack | None = None
    video: VideoTrack | None = None
    screen_audio: AudioTrack | None = None
    screen_video: VideoTrack | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Tracks(Record):
    """The tracks of a session."""

    local: ParticipantTracks = ParticipantTracks()
    bot: ParticipantTracks = ParticipantTracks()
