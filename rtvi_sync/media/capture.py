"""Components that send the user's audio: chunks of 20 ms from a source to the bot, each at its due time."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable

from ..concurrency.deadline import Deadline, join_thread
from ..concurrency.latch import Latch, Notifier
from ..concurrency.lifecycle import start_thread
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.timer_thread import ScheduledTask, Scheduler
from ..errors import RTVIError
from . import pcm as pcm_tools
from .base import AudioSource
from .leases import Lease
from .sources import MemorySource, SourceRun

logger: logging.Logger = package_logger(__name__)

CHUNKS_PER_SECOND = 50
# Chunks of silence sent after muting, so that the bot's VAD can end the turn.
_SILENCE_CHUNKS = CHUNKS_PER_SECOND
# After a stop of more than this many seconds the sender shifts its schedule. Otherwise it would send all missed audio
# in one burst, which a slow connection would drop.
_MAX_LAG = 1.0

SendAudio = Callable[[bytes, int], None]


class Reader:
    """A reader that gets the samples of a source for an `AudioSender`."""

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio that were lost because they were read too late; most sources wait for that."""
        return 0.0

    @property
    def exhausted(self) -> bool:
        """True if the source has ended and all of it was taken."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start reading, because the bot is ready. Must not block."""

    def look(self) -> None:
        """Apply a change of the mute setting; must not block."""

    def take(self, frames: int) -> bytes | None:
        """Return up to `frames` samples, fewer only at the end, or None if they are not read yet.

        Called on the scheduler's thread.
        """
        raise NotImplementedError

    def halt(self) -> None:
        """Stop reading; called once."""

    def join(self, deadline: Deadline) -> threading.Thread | None:  # noqa: ARG002 - for subclasses with a thread
        """Wait until the source is closed and released; return the thread abandoned at the deadline, or None."""
        return None


class MemoryReader(Reader):
    """A reader of a source in memory; it reads on the scheduler's thread itself."""

    exhausted: bool = False

    def __init__(self, source: MemorySource, lease: Lease) -> None:
        self._source = source
        self._lease = lease
        self._position = 0
        self._end = source.total_frames
        self.exhausted = self._end == 0

    def take(self, frames: int) -> bytes:
        """See `Reader.take()`."""
        data = self._source.samples(self._position, frames)
        self._position += len(data) // 2
        if self._end is not None:
            self.exhausted = self._position >= self._end
        return data

    def halt(self) -> None:
        """Release the source."""
        self._lease.release()


class PrefetchReader(Reader):
    """A reader of a source that may block; it reads up to 1 s ahead on its own thread.

    The thread starts as soon as the microphone is on. If that never happens, `halt()` starts it, because the source is
    closed on it.

    Args:
        source: the application's source.
        rate_hz: the source's sample rate.
        lease: lease on the source.
        enabled: returns whether the microphone is on.

    Raises:
        RuntimeError: the process cannot start more threads; the lease has been released.
    """

    def __init__(self, source: AudioSource, rate_hz: int, lease: Lease, enabled: Callable[[], bool]) -> None:
        self._source = source
        self._lease = lease
        self._frames = -(-rate_hz // CHUNKS_PER_SECOND)
        self._limit_bytes = 2 * rate_hz
        self._enabled = enabled
        # Guards the fields below; the source's thread and the scheduler's hold it for a few instructions. Re-entrant,
        # as the other lock of this module, because a finalizer may run on the thread that holds it.
        self._lock = new_lock()
        self._notifier = Notifier()  # notified when the buffer may have room
        self._buffer = bytearray()
        self._begun = False
        self._halted = False
        self._ended = False
        self._failed = False
        self._started = False
        self._thread: threading.Thread | None = None  # assigned by the thread itself
        self._over = Latch()  # the thread has closed the source

        if enabled():
            self._started = True
            self._start()

    def begin(self) -> None:
        """Let the source's thread start reading."""
        self._begun = True
        self.look()

    def look(self) -> None:
        """Start the source's thread if it is needed now, or wake it, so that it checks the mute setting."""
        with self._lock:
            starts = not self._started and (self._halted or self._enabled())
            self._started = self._started or starts
        if not starts:
            self._notifier.notify_all()
            return
        try:
            self._start()
        except RuntimeError as error:
            if not self._halted:
                self._lease.report(error)

    def _start(self) -> None:
        try:
            start_thread("mic", self._run)
        except RuntimeError:
            self._ended = self._failed = True
            self._lease.release()
            self._over.set()
            raise

    def take(self, frames: int) -> bytes | None:
        """See `Reader.take()`."""
        with self._lock:
            if len(self._buffer) < 2 * frames and not self._ended:
                return None
            data = bytes(self._buffer[: 2 * frames])
            del self._buffer[: 2 * frames]
        self._notifier.notify_all()
        return data

    @property
    def exhausted(self) -> bool:
        """True if the source has ended without an error and all of it was taken."""
        with self._lock:
            return self._ended and not self._failed and not self._buffer

    def halt(self) -> None:
        """Stop reading; the source's thread closes the source."""
        self._halted = True
        self.look()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """See `Reader.join()`."""
        if self._thread is not threading.current_thread() and self._over.wait(deadline):
            if self._thread is not None:
                join_thread(self._thread, deadline)
            return None
        self._lease.abandon()
        return self._thread

    def _run(self) -> None:
        self._thread = threading.current_thread()
        try:
            self._read_all()
        except BaseException as error:  # noqa: BLE001 - a SystemExit of the application's code must be reported
            self._lease.failed(error)
        self._lease.close(report=not self._failed)
        self._over.set()

    def _read_all(self) -> None:
        failed = True
        try:
            while not self._lease.abandoned and self._wait_for_room():
                data = pcm_tools.samples_from_source(self._source.read(self._frames))
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
    """A component that sends one source to the bot, then silence until it is halted.

    Chunk k covers the samples from `k * rate / 50` on, rounded down, so that rates whose 20 ms are not whole samples do
    not drift. While muted, the source pauses; 1 s of silence is sent, then nothing.

    Args:
        reader: reader of the source.
        rate_hz: sample rate of the source.
        lease: lease on the source; the reader releases it.
        run: notified when all was sent, or when nothing more will be.
        enabled: returns whether the microphone is on; called for each chunk.
        publish: called with the sent audio: pcm, rate, monotonic time.
    """

    def __init__(
        self,
        reader: Reader,
        rate_hz: int,
        *,
        lease: Lease,
        run: SourceRun,
        enabled: Callable[[], bool],
        publish: Callable[[bytes, int, float], None],
    ) -> None:
        self._reader = reader
        self._rate = rate_hz
        self._lease = lease
        #: The sending of the source, from start to end.
        self.run: SourceRun = run
        self._enabled = enabled
        self._publish = publish
        self._underruns = 0  # this and the next three fields belong to the scheduler's thread
        self._delayed_seconds = 0.0
        self._max_delay = 0.0
        self._completed = False
        # Guards the fields below. The scheduler's thread and the threads that start, mute and halt the sender hold it
        # for a few instructions.
        self._lock = new_lock()
        self._schedule: Scheduler | None = None
        self._task: ScheduledTask | None = None
        self._send: SendAudio | None = None
        self._anchor = 0.0  # due time of chunk 0
        self._index = 0
        self._silence_left = 0  # chunks
        self._parked = True
        self._halted = False

    @property
    def underruns(self) -> int:
        """The number of 20 ms chunks of silence sent because the source was late."""
        return self._underruns

    @property
    def delayed_seconds(self) -> float:
        """The seconds of the pauses, of over 1 s each, that this process has made because it was too busy."""
        return self._delayed_seconds

    @property
    def max_delay(self) -> float:
        """The longest delay of a chunk beyond its due time, in seconds."""
        return self._max_delay

    @property
    def stale_dropped(self) -> int:
        """The number of 20 ms chunks not sent because the application pushed too much."""
        return round(self._reader.dropped_seconds * CHUNKS_PER_SECOND)

    @property
    def ended(self) -> bool:
        """True if the source has ended or failed; silence is sent since."""
        return self.run.is_over

    @property
    def is_closed(self) -> bool:
        """True if the source is closed, and may be used again."""
        return self._lease.is_released

    def start(self, schedule: Scheduler, send: SendAudio) -> None:
        """Start sending. Only the first call has an effect. Does not block."""
        try:
            # An infinite due time keeps the step from running before `halt()` can find the task.
            task = schedule.add(self._step, math.inf)
        except RuntimeError:
            # The session, and with it the scheduler, ended before the sender started.
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
        """Apply a change of the mute setting; called on any thread."""
        self._reader.look()
        with self._lock:
            if self._task is None or self._schedule is None or not self._parked:
                return
            self._parked = False
            task, beat = self._task, self._schedule.beat()
            self._anchor = beat - self._index / CHUNKS_PER_SECOND
        task.reschedule(beat)

    def halt(self) -> None:
        """Stop sending by the return of this call, and halt the reader. Idempotent."""
        with self._lock:
            if self._halted:
                return
            self._halted = True
            task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.run.end()
        self._lease.end_soon()
        self._reader.halt()

    def join(self, deadline: Deadline) -> threading.Thread | None:
        """Wait after `halt()` until the source is closed; return the thread abandoned at the deadline, or None."""
        return self._reader.join(deadline)

    def _step(self, now: float) -> float | None:
        with self._lock:
            enabled = self._enabled()
            if enabled:
                self._silence_left = _SILENCE_CHUNKS
            elif self._silence_left:
                self._silence_left -= 1
            else:
                self._parked = True
                return math.inf
            index = self._index
            self._index += 1
            delay = now - (self._anchor + index / CHUNKS_PER_SECOND)
            self._max_delay = max(self._max_delay, delay)
            if delay > _MAX_LAG and self._schedule is not None:
                anchor, self._anchor = self._anchor, self._schedule.beat() - index / CHUNKS_PER_SECOND
                self._delayed_seconds += self._anchor - anchor
            due = self._anchor + self._index / CHUNKS_PER_SECOND
            send = self._send
        frames = (index + 1) * self._rate // CHUNKS_PER_SECOND - index * self._rate // CHUNKS_PER_SECOND
        chunk = self._reader.take(frames) if enabled else pcm_tools.silence(frames)
        if chunk is None or len(chunk) < 2 * frames:
            chunk = self._padded(chunk, frames)
        assert send is not None
        try:
            send(chunk, self._rate)
        except RTVIError as error:
            # The connection is lost, and the session is about to end.
            logger.debug("Sending audio ended: %s", error)
            return None
        self._publish(chunk, self._rate, now)
        if not self._completed and self._reader.exhausted:
            self._completed = True
            self.run.all_sent()
        return due

    def _padded(self, data: bytes | None, frames: int) -> bytes:
        """Return `data` padded with silence to `frames` samples; None counts as an underrun."""
        if data is None:
            self._underruns += 1
            data = b""
        return data + pcm_tools.silence(frames - len(data) // 2)
