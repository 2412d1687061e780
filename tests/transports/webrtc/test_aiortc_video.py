"""Pictures: sent when there is one, the newest first, and read only for readers."""

from __future__ import annotations

import asyncio
import fractions
import random
import threading
from typing import Any

import aiortc
import pytest
from aiortc.codecs import h264, vpx

from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.concurrency.future import Future
from rtvi_sync.concurrency.lifecycle import NoThreadError, stop_idle_threads
from rtvi_sync.concurrency.loop_thread import acquire_loop
from rtvi_sync.media import VideoFrame
from rtvi_sync.transports.webrtc.aiortc_video import (
    LimitedEncoder,
    PictureTrack,
    converted,
    limit_bitrate,
    picture_of,
    read_pictures,
)
from tests.support import part_probes
from tests.support.forking import in_child
from tests.support.slowness import GUARD
from tests.support.threads import InThread
from tests.support.webrtc import result_of

pytestmark = pytest.mark.inside


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
    encoded: Future[bool] = Future()
    track.put(picture_of(frame(timestamp)), timestamp, encoded)
    return encoded


def test_pictures_in_time(run):
    """A picture has the time of its capture, by RTP's clock, and is encoded when aiortc asks for the next one."""

    async def send():
        track, found, before = PictureTrack(), [], None
        for timestamp in (100.0, 100.1, 100.1):
            encoded = put(track, timestamp)
            found.append(await track.recv())
            assert before is None or before.result()
            assert not encoded.wait(Deadline(0))
            before = encoded
        track.stop()
        assert encoded.result()
        return [picture.pts * picture.time_base for picture in found]

    second = fractions.Fraction(1, 90_000)
    assert run(send()) == [0, fractions.Fraction(1, 10), fractions.Fraction(1, 10) + second]


def test_pictures_of_several_clocks(run):
    """A time stamp before the last one, or far behind it, is of another clock, and time goes on from there."""

    async def send():
        track, found = PictureTrack(), []
        for timestamp in (100.0, 100.5, 1.7e18, 1.7e18, 7.0, 7.5, 3607.5):
            put(track, timestamp)
            found.append((await track.recv()).pts)
        track.stop()
        return found

    assert run(send()) == [0, 45_000, 45_001, 45_002, 45_003, 90_003, 90_003 + 3600 * 90_000]


def test_the_newest_wins(run):
    """A newer picture replaces one that was not taken yet."""

    async def send():
        track = PictureTrack()
        old, new = put(track, 1.0), put(track, 2.0)
        await track.recv()
        track.stop()
        return old.result(), new.result()

    assert run(send()) == (False, True)


def test_the_end_of_the_track(run):
    """A reader that waits is woken, on either side; a later picture is dropped."""

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


class Track:
    """A bot's pictures, from an asynchronous generator."""

    def __init__(self, pictures):
        self._pictures = pictures

    async def recv(self):
        async for picture in self._pictures:
            return picture
        raise aiortc.mediastreams.MediaStreamError


def read(pictures, on_video, wanted=lambda: True):
    track: Any = Track(pictures)
    return read_pictures(track, on_video, wanted)


def test_the_bot_s_pictures(run):
    """The bot's pictures become RGB; one that is not read is dropped."""
    shown: list[VideoFrame] = []
    wanted = [True, False, True]

    async def main():
        seen = asyncio.Event()

        async def pictures():
            yield picture_of(frame())
            await seen.wait()
            yield picture_of(frame())
            yield picture_of(frame())

        def show(picture):
            shown.append(picture)
            seen.set()

        await read(pictures(), show, wanted.pop)

    run(main())
    assert len(shown) == 2
    assert (shown[0].width, shown[0].height, shown[0].format) == (64, 48, "RGB")
    red, green, blue = shown[0].image[:3]
    assert red > 150 > 60 > max(green, blue)


@pytest.fixture
def conversion(monkeypatch):
    """Block conversions; return an awaitable that waits for the first one, and the event that releases them."""
    begun, go_on = threading.Event(), threading.Event()

    def convert(picture):
        begun.set()
        assert go_on.wait(GUARD)
        return picture

    part_probes.convert_pictures_with(monkeypatch, convert)
    yield lambda: asyncio.get_running_loop().run_in_executor(None, begun.wait, GUARD), go_on
    go_on.set()


def test_pictures_that_come_faster_than_they_are_converted(run, conversion):
    """Only the newest picture waits, so that delay and memory do not grow, and the last one is shown."""
    begun, go_on = conversion
    shown: list[int] = []

    async def pictures():
        yield 0
        await begun()
        for n in range(1, 50):
            yield n
        go_on.set()

    run(read(pictures(), shown.append))
    assert shown == [0, 49]


def test_pictures_after_one_that_failed(run, monkeypatch, caplog):
    """Pictures after one that could not be handed on are handed on; only the first failure is logged."""
    part_probes.convert_pictures_with(monkeypatch, lambda picture: picture)
    shown: list[int] = []

    async def main():
        seen = asyncio.Event()

        async def pictures():
            for n in range(4):
                yield n
                await seen.wait()
                seen.clear()

        def show(picture):
            seen.set()
            if picture < 3:
                raise NoThreadError("no thread")
            shown.append(picture)

        await read(pictures(), show)

    run(main())
    assert shown == [3]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [NoThreadError]


def test_the_end_of_a_connection_during_a_conversion(run, conversion):
    """No task is left when the connection ends during a conversion."""
    begun, _ = conversion

    async def pictures():
        yield 0
        await asyncio.Event().wait()

    async def main():
        before = asyncio.all_tasks()
        reading = asyncio.ensure_future(read(pictures(), lambda _: None))
        await begun()
        begun_by_it = asyncio.all_tasks() - before
        reading.cancel()
        _, pending = await asyncio.wait(begun_by_it, timeout=GUARD)
        return len(begun_by_it), len(pending)

    assert run(main()) == (2, 0)


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


@pytest.mark.parametrize(
    ("size", "fits"), [(None, (64, 48)), ((640, 480), (64, 48)), ((32, 480), (32, 24)), ((63, 15), (20, 14))]
)
def test_a_size(size, fits):
    """A larger picture is made to fit, in its shape, with even sides; a smaller one stays."""
    picture = picture_of(frame(), size)
    assert (picture.width, picture.height) == fits
    assert converted(picture, "rgb24").to_ndarray()[fits[1] // 2, fits[0] // 2, 0] > 150


@pytest.mark.parametrize(("limit", "begins"), [(100_000, 100_000), (3_000_000, 500_000)])
def test_a_limit_of_the_bit_rate(limit, begins):
    """The bot's requested rate counts up to the limit, and the encoder is made with it."""
    encoder = LimitedEncoder(limit)
    assert encoder.target_bitrate == begins
    for asked, gets in ((10**9, limit), (1, min(250_000, limit))):
        encoder.target_bitrate = asked
        assert encoder.target_bitrate == gets
        picture = picture_of(frame())
        picture.pts, picture.time_base = 0, fractions.Fraction(1, 90_000)
        encoder.encode(picture)
        assert encoder.codec is not None
        assert encoder.codec.bit_rate == gets
        assert vars(encoder)["_Vp8Encoder__target_bitrate"] == gets  # of which aiortc makes the size of its buffer


def test_aiortc_has_the_encoder(run):
    """The private fields exist in this version, and another sender is left alone."""

    async def limit():
        sender = aiortc.RTCPeerConnection().addTransceiver("video").sender
        return limit_bitrate(sender, 100_000), sender

    done, sender = run(limit())
    assert done
    assert isinstance(sender._RTCRtpSender__encoder, LimitedEncoder)
    assert "_Vp8Encoder__target_bitrate" in vars(vpx.Vp8Encoder())
    other: Any = object()
    assert not limit_bitrate(other, 100_000)


@pytest.mark.parametrize("encoder", [vpx.Vp8Encoder, h264.H264Encoder], ids=["VP8", "H264"])
def test_packets_of_pictures_pass_everywhere(encoder):
    """Packets of pictures have at most 1280 bytes with the headers of RTP, SRTP, UDP and IPv6."""
    noise = random.Random(1).randbytes(3 * 320 * 240)
    picture = picture_of(VideoFrame(image=noise, width=320, height=240, timestamp=0.0))
    picture.pts, picture.time_base = 0, fractions.Fraction(1, 90_000)
    packets, _ = encoder().encode(picture)
    assert len(packets) > 1
    assert max(map(len, packets)) <= 1280 - 12 - 20 - 10 - 8 - 40
