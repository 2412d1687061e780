"""Pictures: sent when there is one, the newest first, and read only for readers."""

from __future__ import annotations

import asyncio
import fractions
import threading
from typing import Any

import aiortc
import pytest

from rtvi_sync.concurrency.future import Future
from rtvi_sync.concurrency.lifecycle import stop_idle_threads
from rtvi_sync.concurrency.loop_thread import acquire_loop
from rtvi_sync.media import VideoFrame
from rtvi_sync.transports.webrtc.aiortc_video import PictureTrack, converted, picture_of, read_pictures
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.threads import InThread

from .test_aiortc_peer import result_of


@pytest.fixture
def run():
    """Return `run(coroutine)`, which runs it on the loop."""
    loop = acquire_loop()
    yield lambda work: result_of(loop.run(work))
    loop.release()
    stop_idle_threads()


def frame(timestamp=0.0, red=200):
    return VideoFrame(image=bytes([red, 0, 0]) * 64 * 48, width=64, height=48, timestamp=timestamp)


def put(track, timestamp=0.0):
    taken: Future[bool] = Future()
    track.put(picture_of(frame(timestamp)), timestamp, taken)
    return taken


def test_pictures_in_time(run):
    """Each has the time of its capture, by the clock of RTP, and is taken when aiortc asks for it."""

    async def send():
        track, found = PictureTrack(), []
        for timestamp in (100.0, 100.1, 100.1):
            taken = put(track, timestamp)
            found.append(await track.recv())
            assert taken.result()
        return [picture.pts * picture.time_base for picture in found]

    second = fractions.Fraction(1, 90_000)
    assert run(send()) == [0, fractions.Fraction(1, 10), fractions.Fraction(1, 10) + second]


def test_the_newest_wins(run):
    """One that was not taken yet is dropped."""

    async def send():
        track = PictureTrack()
        old, new = put(track, 1.0), put(track, 2.0)
        await track.recv()
        return old.result(), new.result()

    assert run(send()) == (False, True)


def test_the_end_of_the_track(run):
    """Whoever waits is woken, on either side; a later picture is dropped."""

    async def end():
        track = PictureTrack()
        waiting = put(track)
        track.stop()
        late = put(track)
        other = PictureTrack()
        reading = asyncio.ensure_future(other.recv())
        await asyncio.sleep(0)
        other.stop()
        with pytest.raises(aiortc.mediastreams.MediaStreamError):
            await reading
        return waiting.result(), late.result()

    assert run(end()) == (False, False)


def test_the_bot_s_pictures(run):
    """They become RGB; one that nobody reads is dropped."""
    shown: list[VideoFrame] = []
    wanted = [True, False, True]

    class Track:
        left = 3

        async def recv(self):
            if not self.left:
                raise aiortc.mediastreams.MediaStreamError
            self.left -= 1
            return picture_of(frame())

    track: Any = Track()
    run(read_pictures(track, shown.append, lambda: wanted.pop()))
    assert len(shown) == 2
    assert (shown[0].width, shown[0].height, shown[0].format) == (64, 48, "RGB")
    red, green, blue = shown[0].image[:3]
    assert red > 150 > 60 > max(green, blue)


def test_the_layout_of_pixels():
    """Rows are taken as they are, whatever padding PyAV adds."""
    levels = [40, 80, 120, 160, 200, 240]
    narrow = VideoFrame(image=bytes(level for level in levels for _ in "rgb"), width=3, height=2, timestamp=0.0)
    picture = picture_of(narrow)
    assert picture.format.name == "yuv420p"
    shown = converted(picture, "gray").to_ndarray().flatten()
    assert [round(level / 40) for level in shown.tolist()] == [1, 2, 3, 4, 5, 6]


def test_a_fork_after_a_conversion():
    """The child gets on, although another thread, which is still there, has converted a picture."""
    converted_one, go_on = threading.Event(), threading.Event()

    def convert() -> None:
        picture = picture_of(VideoFrame(image=bytes(640 * 480 * 3), width=640, height=480, timestamp=0.0))
        converted(picture, "rgb24")
        converted_one.set()
        go_on.wait(GUARD)

    other = InThread(convert)
    assert converted_one.wait(GUARD)
    assert in_child(lambda: "alive") == "alive"
    go_on.set()
    other.thread.join(GUARD)
