"""A source that the application pushes audio to, and its reader."""

from __future__ import annotations

import logging
import time

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..protocol.validation import BYTES, COUNT, SECONDS, WAIT
from . import pcm as pcm_tools
from .base import AudioQueue, Lease
from .sources import PackagedSource

logger: logging.Logger = logging.getLogger(__name__)


class PushSource(PackagedSource):
    """A source that the application pushes audio to, such as the voice of a caller or of a browser.

    What is pushed is sent in real time, in order and bit exact, and silence while there is nothing. No thread is needed
    for it. Speech after silence is sent 20 ms later than it could be, so that a push that is a little late leaves no
    gap. What is pushed before the bot is ready, or while the microphone is muted, is sent afterwards; what was not sent
    when the session ends is discarded. It has no end.

    Args:
        sample_rate_hz: rate of what is pushed.
        max_seconds: limit of what waits to be sent, see `push()`.
    """

    def __init__(self, sample_rate_hz: int = 16_000, max_seconds: float = 60.0) -> None:
        super().__init__(sample_rate_hz)
        SECONDS.check(max_seconds=max_seconds)
        self._max_seconds = float(max_seconds)
        self._queue = AudioQueue(self._max_seconds)
        # Notified when audio was taken, and when a session has ended.
        self._taken = Notifier()
        self._pushed_bytes = 0  # written by the thread that pushes
        # The next three are written by the thread that takes: how much it has taken, and of which frame it takes.
        self._taken_bytes = 0
        self._frame, self._position = b"", 0
        self._was_sent = False  # whether the last session has sent everything

    @property
    def is_endless(self) -> bool:
        """Return True."""
        return True

    @property
    def dropped_seconds(self) -> float:
        """Return the seconds of audio lost because more than `max_seconds` waited, in all sessions."""
        return self._queue.dropped_seconds

    @property
    def waiting_seconds(self) -> float:
        """Return the seconds of audio that wait to be sent; by so much the bot hears what is pushed now later."""
        rate = self._sample_rate_hz
        waiting_bytes = self._pushed_bytes - self._taken_bytes - 2 * round(self.dropped_seconds * rate)
        return max(0, waiting_bytes) / (2 * rate)

    def push(self, pcm: bytes | bytearray | memoryview, timeout: float | None = 0.0) -> None:
        """Have audio sent after what was pushed before. One thread at a time may call it.

        Does not block unless asked to: beyond `max_seconds` the oldest audio is dropped, counted in `dropped_seconds`
        and, when a run of losses begins, logged.

        Args:
            pcm: signed 16-bit little endian mono samples, of any number.
            timeout: seconds to wait for room before audio is dropped; None: no limit. While no session uses the source,
                nothing is waited for.

        Raises:
            ValueError: the number of bytes is odd.
        """
        BYTES.check(pcm=pcm)
        WAIT.or_none.check(timeout=timeout)
        data = bytes(pcm)  # the length of a memoryview need not be in bytes
        pcm_tools.SAMPLES.check(pcm=data)
        if not data:
            return
        seconds = len(data) / (2 * self._sample_rate_hz)
        if timeout != 0 and not self._has_room(seconds):
            self._taken.wait_for(lambda: self._is_unused or self._has_room(seconds), Deadline(timeout))
        self._pushed_bytes += len(data)  # first, so that wait() does not return in between
        dropped = self._queue.add(data, self._sample_rate_hz, time.monotonic())
        if dropped:
            logger.warning(
                "%.2f s of the audio pushed to a PushSource were dropped, and more may follow: more than "
                "max_seconds=%g wait to be sent. Push in real time, pass timeout= to push(), or raise max_seconds",
                dropped,
                self._max_seconds,
            )

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all that was pushed so far was sent to the bot in the current session.

        Never waits for a session to begin: while no session uses this source, the result is that of the last session,
        or False. May be called from any thread.

        Args:
            timeout: limit in seconds; None: until all was sent or the session has ended.

        Returns:
            True if all of it was sent; False if the timeout has passed, or the session ended first.
        """
        WAIT.or_none.check(timeout=timeout)
        self._taken.wait_for(lambda: self._is_unused or not self.waiting_seconds, Deadline(timeout))
        return self._was_sent if self._is_unused else not self.waiting_seconds

    def read(self, frames: int) -> bytes:
        """Return the next samples, for wrappers of the source; silence if nothing is pushed while they would last."""
        COUNT.check(frames=frames)
        self._queue.notifier.wait_for(lambda: self.waiting_seconds, Deadline(frames / self._sample_rate_hz))
        return self.take(frames) or pcm_tools.silence(frames)

    def close(self) -> None:
        """Discard what was not taken."""
        self._was_sent = not self.waiting_seconds
        while self.take(self._sample_rate_hz):
            pass

    def take(self, frames: int) -> bytes:
        """Return up to this number of the next samples, fewer if no more wait; does not block."""
        parts, missing = [], 2 * frames
        while missing and (self._position < len(self._frame) or self._take_frame()):
            part = self._frame[self._position : self._position + missing]
            self._position += len(part)
            missing -= len(part)
            parts.append(part)
        self._taken_bytes += 2 * frames - missing
        self._taken.notify_all()
        return b"".join(parts)

    def _take_frame(self) -> bool:
        _, frame = self._queue.poll()
        if frame is None:
            return False
        self._frame, self._position = frame.pcm, 0
        return True

    @property
    def _is_unused(self) -> bool:
        return self._run is None or self._run.is_over

    def _has_room(self, seconds: float) -> bool:
        waiting = self.waiting_seconds
        return not waiting or waiting + seconds <= self._max_seconds


class PushReader:
    """A reader of a `PushSource`, for one session; it reads on the scheduler's thread."""

    exhausted = False

    def __init__(self, source: PushSource, lease: Lease) -> None:
        self._source = source
        self._lease = lease
        self._is_silent = True
        self._dropped_before = source.dropped_seconds

    @property
    def dropped_seconds(self) -> float:
        """Return the seconds of audio that were dropped in this session."""
        return self._source.dropped_seconds - self._dropped_before

    def begin(self) -> None:
        """Do nothing: what was pushed already is sent, too."""

    def look(self) -> None:
        """Do nothing: no samples are read ahead."""

    def take(self, frames: int) -> bytes:
        """See `Reader.take()`; speech begins one chunk after it could."""
        was_silent, self._is_silent = self._is_silent, not self._source.waiting_seconds
        if self._is_silent or was_silent:
            return b""
        return self._source.take(frames)

    def halt(self) -> None:
        """Discard what was not sent, and release the source."""
        self._source.close()
        self._lease.release()

    def join(self, deadline: Deadline) -> None:
        """Do nothing: there is no thread."""
