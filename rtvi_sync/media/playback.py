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


class Speaker(Protocol):
    """Gives the bot's audio to a sink. All but `join()` is called on the io thread, or without blocking on another."""

    @property
    def dropped(self) -> int:
        """Frames lost because the sink was too slow."""

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Play this next."""

    def interrupt(self) -> None:
        """Forget what is not yet heard."""

    def finish(self) -> None:
        """Nothing more comes: close the sink once it has what was received. Idempotent."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `finish()`: wait until the sink is closed; the thread that was given up at the deadline, or None."""


class DirectSpeaker:
    """Writes to a sink in memory at once.

    Args:
        sink: one of `MEMORY_SINKS`.
        claim: to the sink; None for one that many sessions may share.
        report: told of the failure that ends the sink.
    """

    dropped = 0

    def __init__(self, sink: AudioSink, claim: Claim | None, report: Report) -> None:
        self._sink = sink
        self._report = report
        # Guards the fields below, and the sink against a write that comes while the session ends. The io thread holds
        # it while it writes, which is an operation in memory, and the close thread. Re-entrant, because a finalizer may
        # come in between.
        self._lock = threading.RLock()
        self._claim = claim
        self._open = True

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        failure = None
        with self._lock:
            if not self._open:
                return
            try:
                self._sink.write(pcm, sample_rate_hz)
            except Exception as error:
                logger.exception("%s failed", type(self._sink).__name__)
                self._open, failure = False, error
        if failure is not None:
            self._report(failure)

    def interrupt(self) -> None:
        with self._lock:
            if self._open:
                self._sink.drop()

    def finish(self) -> None:
        with self._lock:
            self._open = False
            claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

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

    def finish(self) -> None:
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
