"""The queue in front of a sink that may block, without a session."""

from __future__ import annotations

import threading

import pytest

from rtvi_sync.media.sink_queue import SinkQueue
from tests.support.slowness import GUARD

FRAME = bytes(960)  # 20 ms at 24 kHz
ROOM = 960 + 256  # bytes of memory that it takes


def numbered(number: int) -> bytes:
    return bytes([number]) * 960


def taken(queue: SinkQueue) -> list[int]:
    """Return the first byte of all that waits."""
    found = []
    while (pcm := queue.take()[1]) is not None:
        found.append(pcm[0])
    return found


def test_audio_that_follows_an_interruption_is_not_lost():
    """A thread that takes while another one interrupts and adds the next audio gets that."""

    class Struck(SinkQueue):
        striking = False

        def _pop(self):
            if self.striking:
                self.striking = False
                self.clear()
                self.add(b"new!", 24000)
            return super()._pop()

    queue = Struck(10 * ROOM)
    queue.add(b"old!", 16000)
    queue.striking = True
    assert queue.take() == (1, b"new!", 24000)
    assert queue.take() == (1, None, 0)


def test_what_is_new():
    """Audio is, and an interruption that the sink was not told of."""
    queue = SinkQueue(ROOM)
    assert not queue.has_news(0)
    queue.add(FRAME, 24000)
    assert queue.has_news(0)
    queue.clear()
    assert len(queue) == 0
    assert queue.has_news(0)
    assert not queue.has_news(1)


def test_what_was_taken_makes_room_and_what_is_put_back_takes_it():
    """The limit counts what waits; what is put back is the next again."""
    queue = SinkQueue(2 * ROOM)
    for number in range(10):
        assert queue.add(numbered(number), 24000) == 0.0
        generation, pcm, rate = queue.take()
        assert pcm == numbered(number)
    queue.put_back((generation, numbered(9), rate))
    assert queue.add(numbered(10), 24000) == 0.0
    assert queue.add(numbered(11), 24000) == 0.02
    assert taken(queue) == [10, 11]
    for number in (12, 13):  # as much room as before
        assert queue.add(numbered(number), 24000) == 0.0
    queue.clear()
    for number in (14, 15):
        assert queue.add(numbered(number), 24000) == 0.0
    assert taken(queue) == [14, 15]
    assert queue.dropped_seconds == 0.02


def test_a_run_of_losses():
    """It is told once, with what was lost for its first audio, and ends when nothing waits; the newest is kept."""
    queue = SinkQueue(2 * ROOM)
    assert [queue.add(numbered(number), 24000) for number in range(5)] == [0, 0, 0.02, 0, 0]
    assert taken(queue) == [3, 4]
    assert queue.add(bytes(10_000), 24000) == 0.0  # more than the limit, and alone
    assert queue.add(numbered(6), 24000) == pytest.approx(10_000 / 48_000)
    assert taken(queue) == [6]


def test_what_comes_after_the_end_is_counted():
    """Its sink has failed, so that audio is lost, as what was queued."""
    queue = SinkQueue(10 * ROOM)
    queue.add(FRAME, 24000)
    queue.end()
    queue.drop_all()
    assert queue.add(FRAME, 24000) == 0.0
    assert queue.dropped_seconds == 0.04
    assert queue.take() == (0, None, 0)


def test_two_threads():
    """What one thread adds, while another one takes, comes in order or is counted as dropped."""
    queue, number, found = SinkQueue(20 * ROOM), 20_000, []

    def take() -> None:
        while True:
            _, pcm, _ = queue.take()
            if pcm is not None:
                found.append(int.from_bytes(pcm[:4], "little"))
            elif queue.ended and not queue:
                return

    taker = threading.Thread(target=take)
    taker.start()
    for each in range(number):
        queue.add(each.to_bytes(4, "little") + bytes(956), 24000)
    queue.end()
    taker.join(GUARD)
    assert not taker.is_alive()
    assert found == sorted(found)
    assert len(found) + round(queue.dropped_seconds / 0.02) == number
