"""Queues of frames without a session."""

from __future__ import annotations

from rtvi_sync.media.base import AudioQueue


def test_a_frame_that_follows_an_interruption_is_not_lost():
    """A thread that gets a frame while another one interrupts and puts the next frame gets that next frame."""

    class Struck(AudioQueue):
        striking = False

        def _take(self):
            if self.striking:
                self.striking = False
                self.clear()
                self.add(b"new!", 24000, 0.0)
            return super()._take()

    queue = Struck(1.0)
    queue.add(b"old!", 24000, 0.0)
    queue.striking = True
    generation, frame = queue.poll()
    assert (generation, frame and frame.pcm) == (1, b"new!")
    assert queue.poll() == (1, None)
