"""Reading what is sent to and heard from the bot."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Literal

import attrs

from .base import AudioFrame, AudioQueue


class TrackFrames(Iterator[AudioFrame]):
    """The frames of a track from `Track.frames()` on, for one reader.

    Iterating blocks until the next frame comes and ends with the track. May be iterated on any one thread.
    """

    def __init__(self, queue: AudioQueue) -> None:
        self._queue = queue

    @property
    def dropped(self) -> int:
        """Frames that this reader lost because it was too slow."""
        return self._queue.dropped

    def queued(self) -> list[AudioFrame]:
        """The frames that have come and that the iteration has not handed out yet; it still will.

        Never waits. May be called from any thread. Who only calls this keeps the last `buffer` seconds of the track.
        """
        return self._queue.queued()

    def __next__(self) -> AudioFrame:
        item = self._queue.get()
        if item is None or item[1] is None:
            raise StopIteration
        return item[1]

    def close(self) -> None:
        """Take no more frames: the iteration ends after those that have come. May be called from any thread."""
        self._queue.end()


class Track:
    """Audio in one direction, from the moment the session has it until it ends.

    Attributes:
        id: unique name.
        kind: "audio".
        label: what it comes from, for humans; set by the session.
    """

    def __init__(self, *, label: str, enabled: Callable[[], bool] = lambda: True) -> None:
        self.id: str = uuid.uuid4().hex
        self.kind: Literal["audio", "video"] = "audio"
        self.label = label
        self._enabled = enabled
        # By identity. There is no lock, which a reader's thread could hold while a signal handler on it waits: the dict
        # is changed in single steps, and walked in copies.
        self._readers: dict[int, weakref.ref[TrackFrames]] = {}
        self._ended = False

    def __repr__(self) -> str:
        return f"<Track {self.kind} {self.label!r} {self.ready_state}>"

    @property
    def enabled(self) -> bool:
        """False while the microphone is muted."""
        return self._enabled()

    @property
    def ready_state(self) -> Literal["live", "ended"]:
        """ "live" until the session is over or the device is taken away."""
        return "ended" if self._ended else "live"

    def frames(self, *, buffer: float = 5.0) -> TrackFrames:
        """Iterate over the frames from now on; call it from any thread, as often as there are readers.

        Args:
            buffer: seconds of audio that a reader may lag behind before it loses the oldest frames (`.dropped`).
        """
        queue = AudioQueue(buffer)
        frames = TrackFrames(queue)
        key, readers = id(frames), self._readers
        readers[key] = weakref.ref(frames, lambda _: readers.pop(key, None))
        if self._ended:  # end() may not have seen it any more
            frames.close()
        return frames

    def publish(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> None:
        """Hand a piece of audio to all readers; called by the session, on one thread. Never blocks."""
        if not self._readers:
            return
        frame = AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=timestamp)
        for reader in self._live_readers():
            reader._queue.put(frame)

    def end(self) -> None:
        """No more frames will come; called by the session."""
        self._ended = True
        for reader in self._live_readers():
            reader.close()
        self._readers.clear()

    def _live_readers(self) -> list[TrackFrames]:
        return [reader for reference in self._readers.copy().values() if (reader := reference()) is not None]


@attrs.frozen(kw_only=True)
class ParticipantTracks:
    """The tracks of one side; None for what is absent."""

    audio: Track | None = None
    video: Track | None = None
    screen_audio: Track | None = None
    screen_video: Track | None = None


@attrs.frozen(kw_only=True)
class Tracks:
    """The tracks of a session."""

    local: ParticipantTracks = ParticipantTracks()
    bot: ParticipantTracks = ParticipantTracks()
