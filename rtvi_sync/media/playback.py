"""Components that play the bot's audio: they write it to a sink."""

from __future__ import annotations

import logging
import math
import threading
from typing import TypeAlias

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import is_exiting
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..concurrency.serial_work import SerialWork, Workers
from .base import AudioFrame, AudioQueue, AudioSink, FrameQueue
from .leases import Lease, Report

logger: logging.Logger = package_logger(__name__)

# Limit of the audio kept while one device replaces another, in seconds.
_MAX_HELD_SECONDS = 120.0
# Bytes that a recorder gets at most in one call. Frames are joined because each call may have to wait for the GIL.
_JOINED_BYTES = 256 * 1024
# Bytes of memory that queued audio takes beside its samples.
_SOUND_BYTES = 256
# Minimum time, in seconds, for a working sink to return from its last call and to close.
_LAST_CALL_TIMEOUT = 0.25


class Speaker:
    """A component that writes the bot's audio to a sink, or keeps it.

    All methods but `join()` are called by one thread at a time, under the lock that orders the bot's audio, and do not
    block.
    """

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio lost because the sink was too slow, or has failed."""
        return 0.0

    @property
    def underruns(self) -> int:
        """The number of times that there was nothing to play during the bot's speech."""
        return 0

    @property
    def waiting_seconds(self) -> float:
        """The seconds of audio that a speaker of this machine has not played yet; 0.0 for a sink."""
        return 0.0

    @property
    def ended(self) -> bool:
        """True if the sink has failed."""
        return False

    def start(self) -> None:
        """Note that the bot is ready."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Play this audio next.

        Returns:
            The seconds of older audio dropped for it if a run of losses starts, else 0.0.
        """
        raise NotImplementedError

    def interrupt(self) -> None:
        """Discard the audio that is not yet played."""

    def surrender(self) -> list[AudioFrame]:
        """Return the queued audio that the replacing component can play, oldest first."""
        return []

    def halt(self) -> None:
        """Close the sink once it has the audio received so far; idempotent."""

    def join(self, deadline: Deadline) -> threading.Thread | None:  # noqa: ARG002 - for subclasses with a thread
        """Wait after `halt()` until the sink is closed; return the thread abandoned at the deadline, or None."""
        return None


class DirectSpeaker(Speaker):
    """A component that writes to a sink in memory, without a queue.

    Args:
        sink: one of `MEMORY_SINKS`.
        lease: lease on the sink; None for a sink that many sessions may share.
        report: called with the exception that ends the sink.
    """

    dropped_seconds: float = 0.0

    def __init__(self, sink: AudioSink, lease: Lease | None, report: Report) -> None:
        self._sink = sink
        self._report = report
        self._lease = lease
        self._open = True

    @property
    def ended(self) -> bool:
        """True if the sink has failed."""
        return not self._open

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Write to the sink; return 0.0, because nothing is dropped before it fails, which is reported."""
        seconds = len(pcm) / (2 * sample_rate_hz)
        if not self._open:
            self.dropped_seconds += seconds
            return 0.0
        try:
            self._sink.write(pcm, sample_rate_hz)
        except Exception as error:
            logger.exception("%s failed", type(self._sink).__name__)
            self._open = False
            self.dropped_seconds += seconds
            self._report(error)
        return 0.0

    def interrupt(self) -> None:
        """Let the sink drop its unplayed audio."""
        if self._open:
            self._sink.drop()

    def halt(self) -> None:
        """Release the sink."""
        self._open = False
        if self._lease is not None:
            self._lease.release()


class BufferingSpeaker(Speaker):
    """A component that holds the bot's audio until the component that plays it is open."""

    def __init__(self) -> None:
        self._queue = AudioQueue(_MAX_HELD_SECONDS)

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio lost because more than 120 s were held."""
        return self._queue.dropped_seconds

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Queue the audio; see `Speaker.write()`."""
        return self._queue.add(pcm, sample_rate_hz, monotonic())

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


_Sound: TypeAlias = tuple[bytes, int]
"""Samples and their rate. Not an `AudioFrame`, which takes ten times as long to make."""


class _SinkQueue(FrameQueue[_Sound]):
    """The audio that waits for a sink; the limit is in bytes of memory.

    Attributes:
        dropped_seconds: seconds of audio lost because the sink was too slow, or has failed.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes, lambda sound: len(sound[0]) + _SOUND_BYTES)
        self.dropped_seconds: float = 0.0

    def add(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Append audio; see `AudioQueue.add()`."""
        sound, before = (pcm, sample_rate_hz), self.dropped_seconds
        if self._ended:
            self._drop(sound)
        begins = self.put(sound)
        return self.dropped_seconds - before if begins else 0.0

    def _drop(self, frame: _Sound) -> None:
        super()._drop(frame)
        self.dropped_seconds += _seconds_of(frame)


def _seconds_of(sound: _Sound) -> float:
    return len(sound[0]) / (2 * sound[1])


class QueuedSpeaker(Speaker):
    """A component that writes to a sink that may block, on the shared workers.

    A worker writes all audio that is queued at its visit. An interruption starts a new generation of the queue. Before
    the first frame of a new generation is written, `drop()` is called, so that the sink also discards the frame that
    was being written at the interruption. A recorder gets all audio, regardless of interruptions.

    Args:
        sink: a sink of the application, or one that writes files.
        lease: lease on the sink.
        max_bytes: limit of the audio queued for the sink.
        workers: the threads that write to the sink.

    Attributes:
        sink: as given.
    """

    def __init__(self, sink: AudioSink, lease: Lease, max_bytes: int, workers: Workers) -> None:
        self.sink: AudioSink = sink
        self._lease = lease
        self._records = getattr(sink, "is_recorder", False) is True
        self._queue = _SinkQueue(max_bytes)
        # The next two are written by the thread that writes to the sink.
        self._generation = 0
        self._taken_at = -math.inf  # monotonic time at which the sink last returned from a call
        self._halted_at = -math.inf
        self._works = False  # whether the sink still took audio when `drain()` returned
        self._begun = False
        self._over = Latch()  # the sink has everything and is closed, or failed, or was abandoned
        self._work = SerialWork(self._serve, workers)

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio lost because the sink was too slow, or has failed."""
        return self._queue.dropped_seconds

    @property
    def ended(self) -> bool:
        """True if the sink has failed, or was abandoned."""
        return self._over.is_set()

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Queue the audio for the sink; see `Speaker.write()`."""
        dropped = self._queue.add(pcm, sample_rate_hz)
        if not self._over.is_set():
            self._work.call_soon()
        return dropped

    def start(self) -> None:
        """Let a recorder be closed though it may have recorded nothing, because the bot is ready."""
        self._begun = True

    def interrupt(self) -> None:
        """Discard the queued audio, unless the sink is a recorder."""
        if not self._records:
            self._queue.clear()
            self._work.call()

    def halt(self) -> None:
        """Refuse further audio; a worker writes the queued audio and closes the sink."""
        if self._halted_at == -math.inf:
            self._halted_at = monotonic()
        self._queue.end()
        self._work.call()

    def drain(self, deadline: Deadline, patience: float) -> bool:
        """Wait after `halt()` while the sink takes the queued audio.

        Args:
            deadline: limit of the wait.
            patience: seconds without a completed call after which a sink is considered hung.

        Returns:
            True if the sink still takes audio at the deadline, or if the sink itself is the caller. False if the sink
            has everything and is closed, or hangs.
        """
        if is_exiting():
            self._serve_at_exit()
        taken_at = self._halted_at
        while not self._over.wait(Deadline(deadline.at_most(taken_at + patience - monotonic()))):
            if self._is_caller:
                return True
            taken_at = max(taken_at, self._taken_at)
            hangs = monotonic() >= taken_at + patience
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
        if not self._is_caller and self._over.wait(deadline):
            return None
        self._lease.abandon(closes_late=self._works)
        return self._work.runner

    @property
    def _is_caller(self) -> bool:
        """True if the sink itself makes the call, so that waiting for the sink would never end."""
        return self._work.runner is threading.current_thread()

    def _serve(self) -> None:
        """Write all queued audio; close the sink after the last. On a worker."""
        if self._over.is_set():
            return
        failed = False
        try:
            self._write_queued()
        except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
            failed = True
            self._queue.end()
            self._queue.drop_all()
            self._lease.failed(error)
        if failed or self._queue.exhausted or self._lease.abandoned:
            # A recorder without a session is not closed, because that would overwrite an older recording.
            if self._begun or not self._records or self._taken_at > -math.inf:
                self._lease.close(report=not failed)
            else:
                self._lease.release()
            self._over.set()

    def _serve_at_exit(self) -> None:
        """Write without the workers: there may be none, and from Python 3.12 on none can be started at exit."""
        try:
            PoolTask("close", self._work.drain).start()
        except RuntimeError:
            self._work.drain()

    def _write_queued(self) -> None:
        while not self._lease.abandoned:
            generation, sound = self._queue.poll()
            if generation != self._generation:
                self._generation = generation
                self.sink.drop()
                self._taken_at = monotonic()
            if sound is None:
                return
            pcm, rate = self._joined(*sound) if self._records else sound
            try:
                self.sink.write(pcm, rate)
            except BaseException:
                self._queue.dropped_seconds += _seconds_of((pcm, rate))
                raise
            self._taken_at = monotonic()

    def _joined(self, pcm: bytes, rate: int) -> _Sound:
        """Join audio and the queued audio of the same rate that follows it."""
        chunks, size = [pcm], len(pcm)
        while size < _JOINED_BYTES:
            generation, following = self._queue.poll()
            if following is None:
                break
            if following[1] != rate:
                self._queue.put_back(generation, following)
                break
            chunks.append(following[0])
            size += len(following[0])
        return b"".join(chunks) if len(chunks) > 1 else pcm, rate
