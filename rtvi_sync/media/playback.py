"""Components that play the bot's audio: they write it to a sink."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Protocol

from ..concurrency.deadline import Deadline
from .base import AudioFrame, AudioQueue, AudioSink, Lease, memory_size_of
from .device_thread import DeviceThread, Report

logger: logging.Logger = logging.getLogger(__name__)

# Seconds of audio kept at most while one device is replaced by another.
_MAX_HELD_SECONDS = 120.0
# Bytes that a recorder gets at most in one call. Frames are joined because each call may have to wait for the GIL.
_JOINED_BYTES = 256 * 1024
# Seconds that a working sink has at least to return from its last call and to close.
_LAST_CALL_TIMEOUT = 0.25


class Speaker(Protocol):
    """A component that writes the bot's audio to a sink.

    All methods but `join()` are called by one thread at a time, under the lock that orders the bot's audio, and do not
    block.
    """

    @property
    def dropped_seconds(self) -> float:
        """Return the seconds of audio lost because the sink was too slow."""

    @property
    def underruns(self) -> int:
        """Return how often there was nothing to play during the bot's speech."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Play this audio next.

        Returns:
            The seconds of older audio dropped for it if a run of losses begins, else 0.0.
        """

    def interrupt(self) -> None:
        """Discard the audio that is not yet played."""

    def surrender(self) -> list[AudioFrame]:
        """Return the queued audio that the replacing component can play, oldest first."""

    def halt(self) -> None:
        """Close the sink once it has the audio received so far; idempotent."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait after `halt()` until the sink is closed; return the thread abandoned at the deadline, or None."""


class DirectSpeaker:
    """A component that writes to a sink in memory, without a queue.

    Args:
        sink: one of `MEMORY_SINKS`.
        lease: on the sink; None for a sink that many sessions may share.
        report: called with the exception that ends the sink.
    """

    dropped_seconds: float = 0.0
    underruns = 0

    def __init__(self, sink: AudioSink, lease: Lease | None, report: Report) -> None:
        self._sink = sink
        self._report = report
        self._lease = lease
        self._open = True

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Write to the sink; return 0.0, because nothing is dropped."""
        if self._open:
            try:
                self._sink.write(pcm, sample_rate_hz)
            except Exception as error:
                logger.exception("%s failed", type(self._sink).__name__)
                self._open = False
                self._report(error)
        return 0.0

    def interrupt(self) -> None:
        """Let the sink drop what is not yet played."""
        if self._open:
            self._sink.drop()

    def surrender(self) -> list[AudioFrame]:
        """Return an empty list, because nothing is queued."""
        return []

    def halt(self) -> None:
        """Release the sink."""
        self._open = False
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def join(self, deadline: Deadline) -> None:
        """Do nothing: there is no thread."""


class BufferingSpeaker:
    """A component that holds the bot's audio until the component that plays it is open."""

    underruns = 0

    def __init__(self) -> None:
        self._queue = AudioQueue(_MAX_HELD_SECONDS)

    @property
    def dropped_seconds(self) -> float:
        """Return the seconds of audio lost because more than 120 s were held."""
        return self._queue.dropped_seconds

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Queue the audio; see `Speaker.write()`."""
        return self._queue.add(pcm, sample_rate_hz, time.monotonic())

    def interrupt(self) -> None:
        """Discard the queued audio."""
        self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """Return all queued audio, oldest first."""
        self._queue.end()
        return self._queue.take_all()

    def halt(self) -> None:
        """Refuse further audio."""
        self._queue.end()

    def join(self, deadline: Deadline) -> None:
        """Do nothing: there is no thread."""


class QueuedSpeaker:
    """A component that writes to a sink that may block, on its own thread.

    An interruption begins a new generation of the queue. Before the thread writes the first frame of a new generation,
    it calls `drop()`, so that the sink also discards the frame that was being written at the interruption. A recorder
    gets all audio, regardless of interruptions.

    Args:
        sink: a sink of the application, or one that writes files.
        lease: on the sink.
        report: called with an exception of the sink, on the sink's thread.
        max_bytes: limit of the audio queued for the sink.

    Attributes:
        sink: as given.
    """

    underruns = 0

    def __init__(self, sink: AudioSink, lease: Lease, report: Report, max_bytes: int) -> None:
        self.sink: AudioSink = sink
        self._records = getattr(sink, "is_recorder", False) is True
        self._queue = AudioQueue(max_bytes, memory_size_of)
        # Monotonic time at which the sink last returned from a call; written by its thread.
        self._taken_at = -math.inf
        self._halted_at = -math.inf
        self._works = False  # whether the sink still took audio when `drain()` returned
        self._begun = False
        self._thread = DeviceThread("speaker", sink, lease, self._write_all, report, self._closes)

    @property
    def dropped_seconds(self) -> float:
        """Return the seconds of audio lost because the sink was too slow."""
        return self._queue.dropped_seconds

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Queue the audio for the sink's thread; see `Speaker.write()`."""
        return self._queue.add(pcm, sample_rate_hz, time.monotonic())

    def begin(self) -> None:
        """Let a recorder be closed though it may have recorded nothing, because the bot is ready."""
        self._begun = True

    def interrupt(self) -> None:
        """Discard the queued audio, unless the sink is a recorder."""
        if not self._records:
            self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """Return an empty list, because the queued audio belongs to this sink."""
        return []

    def halt(self) -> None:
        """Refuse further audio; the sink's thread writes the queued audio and closes the sink."""
        if self._halted_at == -math.inf:
            self._halted_at = time.monotonic()
        self._queue.end()

    def drain(self, deadline: Deadline, patience: float) -> bool:
        """Wait after `halt()` while the sink takes the queued audio.

        Args:
            deadline: of the wait.
            patience: seconds without a completed call after which a sink is considered hung.

        Returns:
            True if the sink still takes audio at the deadline, or if the caller runs on the sink's thread. False if the
            sink has everything and is closed, or hangs.
        """
        taken_at = self._halted_at
        while not self._thread.wait(Deadline(deadline.at_most(taken_at + patience - time.monotonic()))):
            if self._thread.is_current:
                return True
            taken_at = max(taken_at, self._taken_at)
            hangs = time.monotonic() >= taken_at + patience
            if hangs or deadline.expired:
                self._works = taken_at > self._halted_at and not hangs
                return self._works
        return False

    def cut(self) -> float:
        """Drop the audio still queued after `drain()`; return its seconds."""
        before = self.dropped_seconds
        self._queue.drop_all()
        return self.dropped_seconds - before

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """See `Speaker.join()`; a sink that still works has at least 0.25 s and may close later."""
        if self._works:
            deadline = Deadline(max(_LAST_CALL_TIMEOUT, deadline.remaining() or 0.0))
        return self._thread.join(deadline, closes_late=self._works)

    def _closes(self) -> bool:
        """Tell whether the sink is closed: for a recorder without a session that would overwrite an older recording."""
        return self._begun or not self._records or self._taken_at > -math.inf

    def _write_all(self, thread: DeviceThread) -> None:
        generation = 0
        try:
            while not thread.abandoned and (item := self._queue.get(generation)) is not None:
                current, frame = item
                if current != generation:
                    generation = current
                    self.sink.drop()
                if frame is not None:
                    self.sink.write(self._joined(frame) if self._records else frame.pcm, frame.sample_rate_hz)
                self._taken_at = time.monotonic()
        finally:
            self._queue.end()
            self._queue.clear()

    def _joined(self, frame: AudioFrame) -> bytes:
        """Join a frame and the queued frames of the same rate that follow it."""
        chunks, size = [frame.pcm], len(frame.pcm)
        while size < _JOINED_BYTES:
            generation, following = self._queue.poll()
            if following is None:
                break
            if following.sample_rate_hz != frame.sample_rate_hz:
                self._queue.put_back(generation, following)
                break
            chunks.append(following.pcm)
            size += len(following.pcm)
        return b"".join(chunks) if len(chunks) > 1 else frame.pcm
