"""From the bot to a sink."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from ..concurrency.deadline import Deadline
from .base import AudioFrame, AudioQueue, AudioSink, Claim
from .worker import DeviceThread, Report

logger: logging.Logger = logging.getLogger(__name__)

# What may wait for a sink that is slow.
_QUEUE_SECONDS = 1.0
# And what waits while one device makes way for another.
_WAITING_SECONDS = 120.0


class Speaker(Protocol):
    """Gives the bot's audio to a sink. All but `join()` is called by one thread at a time, under the lock that orders
    what is spoken; nothing of that blocks.
    """

    @property
    def dropped(self) -> int:
        """Frames lost because the sink was too slow."""

    @property
    def underruns(self) -> int:
        """How often there was nothing to play in the midst of speech."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Play this next."""

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

    dropped = underruns = 0

    def __init__(self, sink: AudioSink, claim: Claim | None, report: Report) -> None:
        self._sink = sink
        self._report = report
        self._claim = claim
        self._open = True

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        if self._open:
            try:
                self._sink.write(pcm, sample_rate_hz)
            except Exception as error:
                logger.exception("%s failed", type(self._sink).__name__)
                self._open = False
                self._report(error)

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

    dropped = underruns = 0

    def __init__(self) -> None:
        self._queue = AudioQueue(_WAITING_SECONDS)

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        self._queue.put(AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=time.monotonic()))

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
    anything of it, so that what it was writing at that moment is forgotten too.

    Args:
        sink: of the user's, or one that writes files.
        claim: to the sink.
        report: told of an exception in the sink, on its thread.
    """

    underruns = 0

    def __init__(self, sink: AudioSink, claim: Claim, report: Report) -> None:
        self._sink = sink
        self._queue = AudioQueue(_QUEUE_SECONDS)
        self._thread = DeviceThread("speaker", sink, claim, self._write_all, report)

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        self._queue.put(AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=time.monotonic()))

    def interrupt(self) -> None:
        self._queue.clear()

    def surrender(self) -> list[AudioFrame]:
        """What waits belongs into the sink that it was given to."""
        return []

    def halt(self) -> None:
        self._queue.end()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        return self._thread.join(deadline)

    def _write_all(self, thread: DeviceThread) -> None:
        generation = 0
        try:
            while not thread.abandoned and (item := self._queue.get(generation)) is not None:
                current, frame = item
                if current != generation:
                    generation = current
                    self._sink.drop()
                if frame is not None:
                    self._sink.write(frame.pcm, frame.sample_rate_hz)
        finally:
            self._queue.end()
            self._queue.clear()
