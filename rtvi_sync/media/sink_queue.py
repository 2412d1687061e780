"""The queue of the bot's audio in front of a sink that may block."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

# Bytes of memory that queued audio takes beside its samples.
_OVERHEAD = 256

Chunk: TypeAlias = tuple[int, bytes, int]
"""Queued audio: the generation in which it came, its samples, and their rate."""


class SinkQueue:
    """A queue of audio, limited in bytes of memory, on which no thread waits.

    Beyond the limit the oldest audio is dropped and counted; the newest is always kept. A run of losses begins with
    the first dropped audio and ends when the queue is empty. One thread takes; one thread at a time adds and clears.

    Args:
        max_bytes: limit, which the memory beside the samples counts towards.

    Attributes:
        dropped_seconds: seconds of audio lost because it was not taken in time.
        ended: whether further audio is refused; set by `end()`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Without a lock, as in `FrameQueue`: both sides change the deque in atomic steps, and each of the other fields
        # is written by one side only.
        self._chunks: deque[Chunk] = deque()
        self._added = 0  # bytes, without those that were dropped or cleared
        self._taken = 0
        self._generation = 0
        self._is_losing = False  # during a run of losses
        self.ended: bool = False
        self.dropped_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self._chunks)

    def has_news(self, generation: int) -> bool:
        """Tell whether there is audio, or was an interruption after this generation."""
        return bool(self._chunks) or self._generation != generation

    def add(self, pcm: bytes, sample_rate_hz: int) -> float:
        """Append audio without blocking; after `end()` count it as dropped.

        Returns:
            The seconds dropped for it if a run of losses begins, else 0.0.
        """
        chunks = self._chunks
        if self.ended:
            self.dropped_seconds += len(pcm) / (2 * sample_rate_hz)
            return 0.0
        if not chunks:
            self._is_losing = False
        chunks.append((self._generation, pcm, sample_rate_hz))
        self._added += len(pcm) + _OVERHEAD
        return self._drop_oldest() if self._added - self._taken > self._max_bytes else 0.0

    def _drop_oldest(self) -> float:
        was_losing, before = self._is_losing, self.dropped_seconds
        while self._added - self._taken > self._max_bytes and len(self._chunks) > 1:
            self._is_losing = self._drop() or self._is_losing
        return 0.0 if was_losing else self.dropped_seconds - before

    def take(self) -> tuple[int, bytes | None, int]:
        """Return the current generation and its next audio with its rate, None if there is none; does not block."""
        while True:
            chunk = self._pop()
            # Read after the audio is taken, so that what is added after a concurrent `clear()` does not count as stale.
            current = self._generation
            if chunk is None:
                return current, None, 0
            self._taken += len(chunk[1]) + _OVERHEAD
            if chunk[0] == current:
                return chunk

    def put_back(self, chunk: Chunk) -> None:
        """Make what was taken last the next again; called on the thread that takes."""
        self._taken -= len(chunk[1]) + _OVERHEAD
        self._chunks.appendleft(chunk)

    def clear(self) -> None:
        """Discard the queued audio, without counting it as dropped, and begin a new generation."""
        self._generation += 1
        while (chunk := self._pop()) is not None:
            self._added -= len(chunk[1]) + _OVERHEAD

    def end(self) -> None:
        """Refuse further audio; what is queued can still be taken."""
        self.ended = True

    def drop_all(self) -> None:
        """Drop the queued audio and count it; called after `end()`."""
        while self._drop():
            pass

    def _drop(self) -> bool:
        chunk = self._pop()
        if chunk is None:  # it was taken in the meantime
            return False
        self._added -= len(chunk[1]) + _OVERHEAD
        self.dropped_seconds += len(chunk[1]) / (2 * chunk[2])
        return True

    def _pop(self) -> Chunk | None:
        try:
            return self._chunks.popleft() if self._chunks else None
        except IndexError:  # the other side was faster
            return None
