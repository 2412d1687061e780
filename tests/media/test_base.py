"""Queues of frames without a session."""

from __future__ import annotations

import pytest

from rtvi_sync.media import AudioSource
from rtvi_sync.media.base import AudioQueue
from rtvi_sync.media.slot import rate_of
from tests.support import part_probes

pytestmark = pytest.mark.inside


def test_the_rate_of_a_class_that_derives_from_the_protocol():
    """The rate of a derived class may be assigned in `__init__()`, stand in the class, or be a property."""

    class Source(AudioSource):
        def read(self, frames: int) -> bytes:
            return bytes(2 * frames)

        def close(self) -> None:
            pass

    class Assigned(Source):
        def __init__(self) -> None:
            self.sample_rate_hz: int = 16_000

    class OfTheClass(Source):
        sample_rate_hz = 16_000

    class Computed(Source):
        @property
        def sample_rate_hz(self) -> int:
            return 16_000

    assert [rate_of(source) for source in (Assigned(), OfTheClass(), Computed())] == 3 * [16_000]


def test_a_frame_that_follows_an_interruption_is_not_lost():
    """A thread that gets a frame while another one interrupts and puts the next frame gets that next frame."""

    def strike() -> None:
        queue.clear()
        queue.add(b"new!", 24000, 0.0)

    queue = AudioQueue(1.0)
    queue.add(b"old!", 24000, 0.0)
    part_probes.before_next_take(queue, strike)
    generation, frame = queue.poll()
    assert (generation, frame and frame.pcm) == (1, b"new!")
    assert queue.poll() == (1, None)


def test_a_burst():
    """A queue that was shrunk holds more than its limit, if all of its audio arrived within the time of the burst."""
    queue = AudioQueue(60.0)
    queue.shrink(2.0, burst=10.0)

    def come(seconds: int, at: float) -> list[float]:
        for _ in range(seconds):
            queue.add(bytes(16_000), 8000, at)
        return [frame.timestamp for frame in queue.queued()]

    assert come(5, 1.0) == [1.0] * 5
    assert come(4, 2.5) == [1.0] * 5 + [2.5] * 4
    assert come(3, 2.5) == [1.0] * 3 + [2.5] * 7
    assert come(1, 3.0) == [2.5] * 7 + [3.0]
    assert queue.dropped == 5


def test_what_is_taken_at_once():
    """get_queued() returns the audio since the last interruption, and makes room for as much."""
    queue = AudioQueue(1.0)
    queue.add(bytes(24000), 24000, 0.0)
    queue.clear()
    for at in (1.0, 1.5):
        queue.add(bytes(24000), 24000, at)
    assert [frame.timestamp for frame in queue.get_queued()] == [1.0, 1.5]
    assert queue.get_queued() == []
    for at in (2.0, 2.5):
        queue.add(bytes(24000), 24000, at)
    assert [frame.timestamp for frame in queue.get_queued()] == [2.0, 2.5]
    assert queue.dropped == 0


def test_what_comes_after_the_end_is_counted():
    """Audio that arrives after the end of the queue counts as dropped, as the queued audio does."""
    queue = AudioQueue(1.0)
    queue.add(bytes(960), 24000, 0.0)
    queue.end()
    queue.drop_all()
    assert queue.add(bytes(960), 24000, 0.0) == 0.0
    assert (queue.dropped, queue.dropped_seconds) == (2, 0.04)
    assert queue.get() is None


def test_the_next_frame():
    """get() returns a queued frame though the queue has ended, and then None."""
    queue = AudioQueue(1.0)
    queue.clear()
    queue.add(b"last", 24000, 0.0)
    queue.end()
    assert (frame := queue.get()) is not None
    assert frame.pcm == b"last"
    assert queue.get() is None
