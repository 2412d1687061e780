"""From the bot to a sink."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Protocol

from ..concurrency.deadline import Deadline
from .base import AudioFrame, AudioQueue, AudioSink, Lease, bytes_of
from .worker import DeviceThread, Report

logger: logging.Logger = logging.getLogger(__name__)

# What waits while one device makes way for another.
_WAITING_SECONDS = 120.0
# What a recorder is given at once at most. A call for each frame would wait for the interpreter each time.
_JOINED_BYTES = 256 * 1024
# A sink that works has at least this long to return from its last call and to close.
_LAST_CALL = 0.25


class Speaker(Protocol):
    """Gives the bot's audio to a sink. All but `join()` is called by one thread at a time, under the lock that orders
    what is spoken; nothing of that blocks.
    """

    @property
    def dropped_seconds(self) -> float:
        """Audio lost because the sink was too slow."""

    @property
    def underruns(self) -> int:
        """How often there was nothing to play in the midst of speech."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Play this next. Returns the seconds of older audio dropped for it if a run of losses begins, else 0.0."""

    def interrupt(self) -> None:
        """Forget what is not yet heard."""

    def surrender(self) -> list[AudioFrame]:
        """Another one goes on in its place: what waits here and can be played there, the oldest first."""

    def halt(self) -> None:
        """Nothing more comes: close the sink once it has what was received. Idempotent."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until the sink is closed; the thread that was given up at the deadline, or None."""


class DirectSpeaker:
    """Writes to a sink in memory at once.

    Args:
        sink: one of `MEMORY_SINKS`.
        claim: to the sink; None for one that many sessions may share.
        report: told of the failure that ends the sink.
    """

    dropped_seconds: float = 0.0
    underruns = 0

    def __init__(self, sink: AudioSink, claim: Lease | None, report: Report) -> None:
        self._sink = sink
        self._report = report
        self._claim = claim
        self._open = True

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        if self._open:
            try:
                self._sink.write(pcm, sample_rate_hz)
            except Exception as error:
                logger.exception("%s failed", type(self._sink).__name__)
                self._open = False
                self._report(error)
        return 0.0

    def interrupt(self) -> None:
        if self._open:
            self._sink.drop()

    def surrender(self) -> list[AudioFrame]:
        """Nothing waits."""
        return []

    def halt(self) -> None:
        self._open = False
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    def join(self, deadline: Deadline) -> None:
        """Nothing to wait for."""


class WaitingSpeaker:
    """Keeps what is to be heard until there is another one to play it."""

    underruns = 0

    def __init__(self) -> None:
        self._queue = AudioQueue(_WAITING_SECONDS)

    @property
    def dropped_seconds(self) -> float:
        return self._queue.dropped_seconds

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        return self._queue.add(pcm, sample_rate_hz, time.monotonic())

    def interrupt(self) -> None:
        self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """All of it."""
        self._queue.end()
        return self._queue.take_all()

    def halt(self) -> None:
        self._queue.end()

    def join(self, deadline: Deadline) -> None:
        """Nothing to wait for."""


class QueuedSpeaker:
    """Writes to a sink that may block, on a thread of its own.

    An interruption begins a new generation of the queue; the thread, when it sees one, calls `drop()` before it writes
    anything of it, so that what it was writing at that moment is forgotten too. To a recorder an interruption is
    nothing.

    Args:
        sink: of the user's, or one that writes files.
        claim: to the sink.
        report: told of an exception in the sink, on its thread.
        max_bytes: limit of what may wait for the sink.

    Attributes:
        sink: as given.
    """

    underruns = 0

    def __init__(self, sink: AudioSink, claim: Lease, report: Report, max_bytes: int) -> None:
        self.sink: AudioSink = sink
        self._records = getattr(sink, "is_recorder", False) is True
        self._queue = AudioQueue(max_bytes, bytes_of)
        # When the sink took something last, in monotonic seconds: written by its thread.
        self._taken_at = -math.inf
        self._halted_at = -math.inf
        self._works = False  # it still took audio when `drain()` was over
        self._thread = DeviceThread("speaker", sink, claim, self._write_all, report)

    @property
    def dropped_seconds(self) -> float:
        return self._queue.dropped_seconds

    def write(self, pcm: bytes, sample_rate_hz: int) -> float:
        return self._queue.add(pcm, sample_rate_hz, time.monotonic())

    def interrupt(self) -> None:
        if not self._records:
            self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """What waits belongs into the sink that it was given to."""
        return []

    def halt(self) -> None:
        if self._halted_at == -math.inf:
            self._halted_at = time.monotonic()
        self._queue.end()

    def drain(self, deadline: Deadline, patience: float) -> bool:
        """After `halt()`: wait while the sink takes what waits for it.

        Args:
            deadline: of the wait.
            patience: a sink that has taken nothing for this many seconds hangs.

        Returns:
            Whether the sink still takes audio at the deadline, or its own thread asks. False: it has everything and is
            closed, or it hangs.
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
        """After `drain()`: drop what still waits. Returns its seconds."""
        before = self.dropped_seconds
        self._queue.drop_all()
        return self.dropped_seconds - before

    def join(self, deadline: Deadline) -> threading.Thread | None:
        if self._works:
            deadline = Deadline(max(_LAST_CALL, deadline.remaining() or 0.0))
        return self._thread.join(deadline, closes_late=self._works)

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
        """Join a frame and those of the same rate that wait behind it."""
        pieces, size = [frame.pcm], len(frame.pcm)
        while size < _JOINED_BYTES:
            generation, following = self._queue.poll()
            if following is None:
                break
            if following.sample_rate_hz != frame.sample_rate_hz:
                self._queue.put_back(generation, following)
                break
            pieces.append(following.pcm)
            size += len(following.pcm)
        return b"".join(pieces) if len(pieces) > 1 else frame.pcm
