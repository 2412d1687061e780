"""From a source to the bot: chunks of 20 ms at their times."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Protocol

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.timer_thread import PacerTask, Scheduler
from ..errors import RTVIError
from . import pcm as pcm_tools
from .base import AudioSource, Lease
from .sources import MemorySource, SourceRun
from .worker import DeviceThread, Report

logger: logging.Logger = logging.getLogger(__name__)

CHUNKS_PER_SECOND = 50
# What is sent after muting, so that the bot's VAD can end the turn.
_HUSH_CHUNKS = CHUNKS_PER_SECOND
# A process that was stopped for longer goes on from where it was instead of sending all it missed in one burst, which
# a slow line would drop.
_MAX_LAG = 1.0

SendAudio = Callable[[bytes, int], None]


class Mic(Protocol):
    """What sends the user's voice: a device, or a source. Nothing of it blocks but `join()`."""

    @property
    def underruns(self) -> int:
        """Chunks of 20 ms of silence that were sent because the source was late."""

    @property
    def stale_dropped(self) -> int:
        """Chunks of 20 ms that were not sent because they were read too late."""

    def start(self, schedule: Scheduler, send: SendAudio) -> None:
        """The bot is ready: begin to send. The first call counts."""

    def look(self) -> None:
        """The microphone was muted or unmuted. Called on any thread."""

    def halt(self) -> None:
        """Send nothing more from the return of this call on, and end. Idempotent."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until it has ended; the thread that was given up at the deadline, or None."""


class Reader(Protocol):
    """Gets samples out of a source for the feed."""

    def begin(self) -> None:
        """The bot is ready. Must not block."""

    def look(self) -> None:
        """Muted or unmuted. Must not block."""

    def take(self, frames: int) -> bytes | None:
        """Up to `frames` samples, fewer only at the end; None: not there yet. Called on the schedule's thread."""

    @property
    def exhausted(self) -> bool:
        """The source has come to its end and all of it was taken."""

    def halt(self) -> None:
        """Stop reading; called once."""

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait until the source is closed and free; the thread that was given up at the deadline, or None."""


class MemoryReader:
    """Reads a source in memory, on the schedule's thread itself."""

    def __init__(self, source: MemorySource, lease: Lease) -> None:
        self._source = source
        self._lease = lease
        self._position = 0
        self._end = source.total_frames
        self.exhausted: bool = self._end == 0

    def begin(self) -> None:
        """The position is the beginning."""

    def look(self) -> None:
        """Nothing is read ahead."""

    def take(self, frames: int) -> bytes:
        data = self._source.samples(self._position, frames)
        self._position += len(data) // 2
        if self._end is not None:
            self.exhausted = self._position >= self._end
        return data

    def halt(self) -> None:
        self._lease.release()

    def join(self, deadline: Deadline) -> None:
        """Nothing to wait for."""


class PrefetchReader:
    """Reads a source that may block on a thread of its own, up to 1 s ahead.

    Args:
        source: of the user's.
        rate_hz: its rate.
        lease: to the source.
        enabled: whether the microphone is on.
        report: told of an exception in the source, on its thread.
    """

    def __init__(
        self, source: AudioSource, rate_hz: int, lease: Lease, enabled: Callable[[], bool], report: Report
    ) -> None:
        self._source = source
        self._frames = -(-rate_hz // CHUNKS_PER_SECOND)
        self._limit_bytes = 2 * rate_hz
        self._enabled = enabled
        # Guards the fields below; the source's thread and the schedule's hold it for a few instructions. Re-entrant, as
        # the other one here, because a finalizer may come in between.
        self._lock = threading.RLock()
        self._notifier = Notifier()  # rung when there may be room
        self._buffer = bytearray()
        self._begun = False
        self._halted = False
        self._ended = False
        self._failed = False
        self._thread = DeviceThread("mic", source, lease, self._read_all, report)

    def begin(self) -> None:
        self._begun = True
        self._notifier.notify_all()

    def look(self) -> None:
        self._notifier.notify_all()

    def take(self, frames: int) -> bytes | None:
        with self._lock:
            if len(self._buffer) < 2 * frames and not self._ended:
                return None
            data = bytes(self._buffer[: 2 * frames])
            del self._buffer[: 2 * frames]
        self._notifier.notify_all()
        return data

    @property
    def exhausted(self) -> bool:
        with self._lock:
            return self._ended and not self._failed and not self._buffer

    def halt(self) -> None:
        self._halted = True
        self._notifier.notify_all()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        return self._thread.join(deadline)

    def _read_all(self, thread: DeviceThread) -> None:
        failed = True
        try:
            while not thread.abandoned and self._wait_for_room():
                data = self._source.read(self._frames)
                if not isinstance(data, (bytes, bytearray, memoryview)):
                    raise TypeError(f"read() of an AudioSource returns bytes, not {type(data).__name__}")
                if len(data) % 2:
                    raise ValueError(f"read() returned {len(data)} bytes; a sample has 2, so the number must be even")
                if not data:
                    break
                with self._lock:
                    self._buffer += data
            failed = False
        finally:
            with self._lock:
                self._ended, self._failed = True, failed

    def _wait_for_room(self) -> bool:
        def ready() -> bool:
            room = self._begun and self._enabled() and len(self._buffer) < self._limit_bytes
            return room or self._halted

        self._notifier.wait_for(ready, Deadline(None))
        return not self._halted


class AudioSender:
    """Sends one source to the bot, then silence, until it is halted.

    Chunk k covers the samples from `k * rate / 50` on, rounded down, so that rates whose 20 ms are not whole samples do
    not drift. Muted, the source stands still, 1 s of silence is sent and then nothing.

    Args:
        reader: gets the samples.
        rate_hz: what they are sent at.
        run: told when all was sent, or nothing more will be.
        enabled: whether the microphone is on; asked for each chunk.
        publish: given what was sent: pcm, rate, monotonic time.
    """

    #: Sources wait until they are read.
    stale_dropped = 0

    def __init__(
        self,
        reader: Reader,
        rate_hz: int,
        *,
        run: SourceRun,
        enabled: Callable[[], bool],
        publish: Callable[[bytes, int, float], None],
    ) -> None:
        self._reader = reader
        self._rate = rate_hz
        self._run = run
        self._enabled = enabled
        self._publish = publish
        self._underruns = 0  # this and the next are the schedule's thread's
        self._completed = False
        # Guards the fields below. The schedule's thread and those that start, mute and halt the feed hold it, for a few
        # instructions.
        self._lock = threading.RLock()
        self._schedule: Scheduler | None = None
        self._task: PacerTask | None = None
        self._send: SendAudio | None = None
        self._anchor = 0.0  # when chunk 0 was due, or would have been
        self._index = 0
        self._hush = 0
        self._parked = True
        self._halted = False

    @property
    def underruns(self) -> int:
        """Chunks of silence that were sent because the source was late."""
        return self._underruns

    def start(self, schedule: Scheduler, send: SendAudio) -> None:
        """Begin; the first call counts. Does not block."""
        try:
            # Parked, so that the step cannot run before halt() can find the task.
            task = schedule.add(self._step, math.inf)
        except RuntimeError:
            # The session has ended, and with it the schedule, before it could begin.
            if self._halted:
                return
            raise
        with self._lock:
            refused = self._halted or self._task is not None
            if not refused:
                self._schedule, self._task, self._send = schedule, task, send
        if refused:
            task.cancel()
            return
        self._reader.begin()
        self.look()

    def look(self) -> None:
        """The microphone was muted or unmuted. Called on any thread."""
        self._reader.look()
        with self._lock:
            if self._task is None or self._schedule is None or not self._parked:
                return
            self._parked = False
            task, beat = self._task, self._schedule.beat()
            self._anchor = beat - self._index / CHUNKS_PER_SECOND
        task.reschedule(beat)

    def halt(self) -> None:
        """Send nothing more from the return of this call on; the source is told to end. Idempotent."""
        with self._lock:
            if self._halted:
                return
            self._halted = True
            task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self._run.end()
        self._reader.halt()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """After `halt()`: wait until the source is closed; the thread that was given up at the deadline, or None."""
        return self._reader.join(deadline)

    def _step(self, now: float) -> float | None:
        with self._lock:
            enabled = self._enabled()
            if enabled:
                self._hush = _HUSH_CHUNKS
            elif self._hush:
                self._hush -= 1
            else:
                self._parked = True
                return math.inf
            index = self._index
            self._index += 1
            if now - (self._anchor + index / CHUNKS_PER_SECOND) > _MAX_LAG and self._schedule is not None:
                self._anchor = self._schedule.beat() - index / CHUNKS_PER_SECOND
            due = self._anchor + self._index / CHUNKS_PER_SECOND
            send = self._send
        frames = (index + 1) * self._rate // CHUNKS_PER_SECOND - index * self._rate // CHUNKS_PER_SECOND
        chunk = self._reader.take(frames) if enabled else pcm_tools.silence(frames)
        if chunk is None or len(chunk) < 2 * frames:
            chunk = self._filled_up(chunk, frames)
        assert send is not None
        try:
            send(chunk, self._rate)
        except RTVIError as error:
            # The line is gone; the end of the session is on its way.
            logger.debug("Sending audio ended: %s", error)
            return None
        self._publish(chunk, self._rate, now)
        if not self._completed and self._reader.exhausted:
            self._completed = True
            self._run.all_sent()
        return due

    def _filled_up(self, data: bytes | None, frames: int) -> bytes:
        if data is None:
            self._underruns += 1
            data = b""
        return data + pcm_tools.silence(frames - len(data) // 2)
