"""A source that the application pushes audio to, and its reader."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.logs import package_logger
from ..protocol.validation import BYTES, COUNT, SECONDS, WAIT
from . import pcm as pcm_tools
from .capture import Reader
from .leases import Lease
from .resample import RateConverter, longest_lag
from .sources import PackagedSource

logger: logging.Logger = package_logger(__name__)


class PushSource(PackagedSource):
    """A source that the application pushes audio to, such as the voice of a caller or of a browser.

    The pushed audio is sent in real time, in order and bit exact, with silence in between. No thread is needed for it.
    Speech after silence is sent 20 ms later than possible, so that a push that is a little late leaves no gap. Audio
    that is pushed before the bot is ready, or while the microphone is muted, is sent afterwards, even if it takes
    several attempts to connect. Audio that was not sent when the session ends is discarded. The source has no end.

    Args:
        sample_rate_hz (hertz): Sample rate of the pushed audio.
        max_seconds: Limit of the audio that waits to be sent, see `push()`. For a live voice use 0.3: that is then its
            longest delay.
    """

    def __init__(self, sample_rate_hz: int = 16_000, max_seconds: float = 60.0) -> None:
        super().__init__(sample_rate_hz)
        SECONDS.check(max_seconds=max_seconds)
        self._max_bytes = 2 * round(max_seconds * sample_rate_hz)
        self._piece_bytes = 2 * max(1, sample_rate_hz // 10)
        # There is no lock, because a signal handler could wait for it on the pushing thread while that thread holds it.
        # Both sides change the deque in atomic steps, and each number is written by one side only.
        self._chunks: deque[bytes] = deque()
        self._pushed = Notifier()
        self._taken = Notifier()  # notified when a session has ended, too
        # Of the thread that pushes: the bytes that it has pushed, and the bytes that it has dropped for lack of room.
        self._pushed_bytes = self._overflowed_bytes = 0
        self._cleared_bytes = 0  # of the thread that clears
        self._is_losing = False  # from the first loss on, until nothing waits
        # Of the thread that takes: the bytes that it has taken, and the chunk that it takes from.
        self._taken_bytes = 0
        self._chunk, self._position = b"", 0
        # Of the thread that takes: the bytes that it has sent; a reader that converts them holds some back.
        self._sent_bytes = 0
        self._was_sent = False  # whether the last session has sent everything

    @property
    def is_endless(self) -> bool:
        """True."""
        return True

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio lost, in all sessions: more than `max_seconds` waited, or `clear()`."""
        return self._dropped_bytes / (2 * self._sample_rate_hz)

    @property
    def waiting_seconds(self) -> float:
        """The seconds of audio that wait to be sent. The bot hears audio that is pushed now this much later."""
        return self.waiting_bytes / (2 * self._sample_rate_hz)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of audio that wait to be sent."""
        return self._pushed_bytes - self._dropped_bytes - self._taken_bytes

    def push(self, pcm: bytes | bytearray | memoryview, timeout: float | None = 0.0) -> None:
        """Have audio sent after the audio of earlier calls. One thread at a time may call it.

        By default the call does not block: beyond `max_seconds` the oldest audio of earlier calls is dropped, counted
        in `dropped_seconds` and, when a run of losses starts, logged.

        Args:
            pcm: Signed 16-bit little endian mono samples, of any number.
            timeout (seconds): Limit of the wait for room, after which audio is dropped. None: no limit. Without a
                session that uses the source, the call does not wait.

        Raises:
            ValueError: The number of bytes is odd.
        """
        if type(pcm) is not bytes or len(pcm) % 2:
            BYTES.check(pcm=pcm)
            pcm = bytes(pcm)  # the length of a memoryview need not be in bytes
            pcm_tools.SAMPLES.check(pcm=pcm)
        size = len(pcm)
        if timeout != 0.0:
            WAIT.or_none.check(timeout=timeout)
            self._taken.wait_for(lambda: self._is_unused or self._has_room(size), Deadline(timeout))
        if not size:
            return
        if not self._chunks:
            self._is_losing = False
        self._pushed_bytes += size  # first, so that wait() does not return in between
        # In pieces, so that the oldest part of a long push can be dropped.
        pieces = [pcm[begin : begin + self._piece_bytes] for begin in range(0, size, self._piece_bytes)]
        self._chunks.extend(pieces)
        if self.waiting_bytes > self._max_bytes:
            self._drop_oldest(len(pieces))
        self._pushed.notify_all()

    def _drop_oldest(self, kept: int) -> None:
        """Drop the oldest chunks, but not the last ones, which were pushed now."""
        while self.waiting_bytes > self._max_bytes and len(self._chunks) > kept:
            with contextlib.suppress(IndexError):  # they were taken in the meantime
                self._overflowed_bytes += len(self._chunks.popleft())
                if not self._is_losing:
                    self._is_losing = True
                    logger.warning(
                        "The oldest audio pushed to a PushSource is dropped: more than its max_seconds wait to be "
                        "sent. Push in real time, and not while the microphone is muted; or pass timeout= to push(), "
                        "or raise max_seconds"
                    )

    def clear(self) -> None:
        """Drop the audio that waits to be sent, so that the bot hears the next push at once.

        The dropped audio is counted in `dropped_seconds`. Up to 0.1 s remains, if a part of it was sent. Does not
        block. One thread at a time may call it, even while another one pushes.
        """
        with contextlib.suppress(IndexError):  # nothing waits any more
            while True:
                self._cleared_bytes += len(self._chunks.popleft())
        self._taken.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until all earlier pushes were sent to the bot, or dropped, in the current session.

        Never waits for a session to start: while no session uses this source, the result is the last session's,
        or False. May be called from any thread.

        Args:
            timeout (seconds): Limit of the wait. None: until all was sent or the session has ended.

        Returns:
            True if all of it was sent; False if the timeout has passed, or the session ended first.
        """
        WAIT.or_none.check(timeout=timeout)
        pushed_bytes = self._pushed_bytes
        self._taken.wait_for(lambda: self._is_unused or self._is_sent(pushed_bytes), Deadline(timeout))
        return self._was_sent if self._is_unused else self._is_sent(pushed_bytes)

    def read(self, frames: int) -> bytes:
        """Return the next samples, for an application that reads the source; silence if none are pushed in time.

        A session does not call it, not even for a `ResamplingSource` of this source. It reads after the clock by which
        it sends, so that a push that is a little late leaves no gap.
        """
        COUNT.check(frames=frames)
        self._pushed.wait_for(lambda: self.waiting_bytes, Deadline(frames / self._sample_rate_hz))
        pcm = self.take(frames)
        self.mark_sent()
        return pcm or pcm_tools.silence(frames)

    def close(self) -> None:
        """Discard the unsent audio."""
        self._was_sent = self._is_sent(self._pushed_bytes)
        while self.take(self._sample_rate_hz):
            pass
        self.mark_sent()

    def keep(self) -> None:
        """Keep the audio that was not taken for the next session; wake `push()` and `wait()`: this one ended."""
        self._was_sent = self._was_sent and not self.waiting_bytes
        self._taken.notify_all()

    def take(self, frames: int) -> bytes:
        """Return up to this number of the next samples, fewer if no more wait; does not block.

        `mark_sent()` follows.
        """
        missing = 2 * frames
        parts: list[bytes] = []
        while missing:
            part = self._chunk[self._position : self._position + missing]
            if not part:
                try:
                    self._chunk, self._position = self._chunks.popleft(), 0
                except IndexError:
                    break
                continue
            self._position += len(part)
            missing -= len(part)
            parts.append(part)
        self._taken_bytes += 2 * frames - missing
        return b"".join(parts)

    def mark_sent(self, held_bytes: int = 0) -> None:
        """Note that the taken audio is sent, except the last `held_bytes`; wake the threads that wait for it."""
        # Silence in front of speech is held, too, so that more may be held than was taken.
        self._sent_bytes = max(self._sent_bytes, self._taken_bytes - held_bytes)
        self._taken.notify_all()

    @property
    def _dropped_bytes(self) -> int:
        return self._overflowed_bytes + self._cleared_bytes

    @property
    def _is_unused(self) -> bool:
        return self._run is None or self._run.is_over

    def _is_sent(self, pushed_bytes: int) -> bool:
        return self._dropped_bytes + self._sent_bytes >= pushed_bytes

    def _has_room(self, size: int) -> bool:
        waiting_bytes = self.waiting_bytes
        return not waiting_bytes or waiting_bytes + size <= self._max_bytes


class PushReader(Reader):
    """A reader of a `PushSource`, for one session; it reads on the scheduler's thread.

    Args:
        source: the source.
        lease: lease on the source.
        rate_hz: the rate of the sent audio.
    """

    exhausted = False

    def __init__(self, source: PushSource, lease: Lease, rate_hz: int) -> None:
        self._source = source
        self._lease = lease
        self._is_at_rate = source.sample_rate_hz == rate_hz
        self._converter = RateConverter(rate_hz)
        # Silence in front of speech, as long as the converter may hold audio back, so that speech has no gap.
        self._lag = 0.0 if self._is_at_rate else longest_lag(source.sample_rate_hz, rate_hz)
        self._head = pcm_tools.silence(round(self._lag * rate_hz))
        self._ready = b""  # the next samples, at the rate of the sent audio
        self._is_silent = True
        self._has_begun = False
        self._dropped_before = source.dropped_seconds

    @property
    def dropped_seconds(self) -> float:
        """The seconds of audio that were dropped in this session."""
        return self._source.dropped_seconds - self._dropped_before

    def begin(self) -> None:
        """Let `halt()` discard unsent audio. Audio that was pushed before is sent, too."""
        self._has_begun = True

    def take(self, frames: int) -> bytes:
        """See `Reader.take()`. Speech starts one chunk later than possible."""
        if self._is_silent:
            if self._source.waiting_bytes:
                self._is_silent = False
                self._ready += self._head
        elif self._is_at_rate:
            pcm = self._source.take(frames)
            self._source.mark_sent()
            self._is_silent = len(pcm) < 2 * frames
            return pcm
        else:
            self._read(frames)
        pcm, self._ready = self._ready[: 2 * frames], self._ready[2 * frames :]
        if not self._is_at_rate:
            held = len(self._ready) / (2 * self._converter.to_hz) + (0.0 if self._is_silent else self._lag)
            self._source.mark_sent(2 * math.ceil(held * self._source.sample_rate_hz))
        return pcm

    def _read(self, frames: int) -> None:
        """Read until this number of samples is ready, or nothing waits, which ends the speech."""
        rate, rate_sent = self._source.sample_rate_hz, self._converter.to_hz
        while (missing := frames - len(self._ready) // 2) > 0:
            pcm = self._source.take(-(-missing * rate // rate_sent))
            if not pcm:
                self._ready += self._converter.finish()
                self._is_silent = True
                return
            self._ready += self._converter.convert(pcm, rate)

    def halt(self) -> None:
        """Discard the unsent audio, unless the bot was never ready, and release the source."""
        if self._has_begun:
            self._source.close()
        else:
            self._source.keep()
        self._lease.release()
