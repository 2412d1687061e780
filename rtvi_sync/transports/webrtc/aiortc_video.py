"""Pictures on aiortc: the camera and the screen to the bot, and the bot's pictures."""

from __future__ import annotations

import asyncio
import fractions
import logging
from collections.abc import Callable
from typing import Any

import av
from aiortc import MediaStreamTrack, RTCRtpSender
from aiortc.codecs import h264, vpx
from aiortc.mediastreams import MediaStreamError

from ...concurrency.clock import monotonic
from ...concurrency.future import Future
from ...concurrency.logs import package_logger
from ...media import VideoFrame

logger: logging.Logger = package_logger(__name__)

_CLOCK_HZ = 90_000
_TIME_BASE = fractions.Fraction(1, _CLOCK_HZ)
# A time stamp that is later by more than this, in seconds, is of another clock.
_LONGEST_PAUSE = 86_400
# Where aiortc keeps the encoder of a sender, which it makes with the first picture.
_ENCODER = "_RTCRtpSender__encoder"

# aiortc's packets of pictures are larger than the smallest MTU of IPv6, which many VPNs have. This leaves room
# for the headers of RTP with its extensions, SRTP, UDP and IPv6.
_codec: Any
for _codec in (h264, vpx):
    if hasattr(_codec, "PACKET_MAX"):
        _codec.PACKET_MAX = min(_codec.PACKET_MAX, 1180)


class PictureTrack(MediaStreamTrack):
    """The camera or the screen. The track sends each picture that it gets, and nothing else.

    A track exists from the start, because the bot ignores later ones.
    """

    kind = "video"

    def __init__(self) -> None:
        super().__init__()
        self._next: tuple[Any, Future[bool]] | None = None
        self._encoding: Future[bool] | None = None  # of the picture that aiortc has taken last
        self._arrived = asyncio.Event()
        self._began: float | None = None
        self._last = -1  # the time stamp of the last picture

    def put(self, picture: Any, timestamp: float, encoded: Future[bool]) -> None:
        """Send a picture. Called on the loop.

        Args:
            picture: picture of PyAV.
            timestamp: time of the capture, in monotonic seconds.
            encoded: set to True when aiortc has encoded the picture, so that the caller can send its newest one; to
                False if the track has ended, or a newer picture has replaced it.
        """
        self._drop()
        picture.pts, picture.time_base = self._stamp(timestamp), _TIME_BASE
        self._next = picture, encoded
        self._arrived.set()
        if self.readyState != "live":
            self._drop()

    async def recv(self) -> Any:
        """Return the next picture; aiortc calls it when it has encoded the last one, on another thread."""
        self._resolve_encoded()
        while self._next is None:
            if self.readyState != "live":
                raise MediaStreamError
            self._arrived.clear()
            await self._arrived.wait()
        (picture, self._encoding), self._next = self._next, None
        return picture

    def _resolve_encoded(self) -> None:
        if self._encoding is not None:
            self._encoding.resolve(True)
            self._encoding = None

    def _stamp(self, timestamp: float) -> int:
        soonest = (self._last + 1) / _CLOCK_HZ
        if self._began is None or not 0 <= timestamp - self._began - soonest < _LONGEST_PAUSE:
            self._began = timestamp - soonest  # the first picture, or one of another clock, or of the same moment
        self._last = max(self._last + 1, round((timestamp - self._began) * _CLOCK_HZ))
        return self._last

    def _drop(self) -> None:
        if self._next is not None:
            self._next[1].resolve(False)
            self._next = None

    def stop(self) -> None:
        """End the track, and wake the threads that wait for it."""
        super().stop()
        self._resolve_encoded()
        self._drop()
        self._arrived.set()


class LimitedEncoder(vpx.Vp8Encoder):
    """aiortc's encoder of VP8, with a limit of its bit rate other than 1.5 Mbit/s.

    Args:
        limit: bits per second. The bot may ask for less, by its reports.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.target_bitrate = vpx.DEFAULT_BITRATE

    @property
    def target_bitrate(self) -> int:
        """The bit rate to be sent."""
        return self._Vp8Encoder__target_bitrate

    @target_bitrate.setter
    def target_bitrate(self, bitrate: int) -> None:
        # aiortc's own field, from which it takes the size of the encoder's buffer.
        self._Vp8Encoder__target_bitrate = max(min(vpx.MIN_BITRATE, self._limit), min(bitrate, self._limit))


def limit_bitrate(sender: RTCRtpSender, limit: int) -> bool:
    """Limit the bit rate of a sender of VP8; return False if this version of aiortc does not allow it."""
    if not hasattr(sender, _ENCODER):
        return False
    setattr(sender, _ENCODER, LimitedEncoder(limit))
    return True


def picture_of(frame: VideoFrame, size: tuple[int, int] | None = None) -> Any:
    """Return a picture of PyAV, for `PictureTrack.put()`, in the format of the encoder.

    Args:
        frame: the picture.
        size: width and height that it is made to fit into, if it is larger; it keeps its shape.
    """
    picture = av.VideoFrame.from_ndarray(frame.to_numpy(), format="rgb24")
    scale = 1.0 if size is None else min(1.0, size[0] / frame.width, size[1] / frame.height)
    if scale == 1.0:
        return converted(picture, "yuv420p")
    width, height = (max(2, 2 * int(scale * each / 2 + 1e-6)) for each in (frame.width, frame.height))
    return converted(picture, "yuv420p", width=width, height=height)


def converted(picture: Any, pixel_format: str, **size: int) -> Any:
    """Return a picture in another format, and of another size (`width` and `height`).

    Call it on one thread only: PyAV keeps a converter for each thread that has used one. If a converter has threads of
    its own, a forked child hangs in `os.fork()`, where Python 3.12 releases the data of other threads.
    """
    return picture.reformat(format=pixel_format, threads=1, **size)


async def read_pictures(
    track: MediaStreamTrack, on_video: Callable[[VideoFrame], None], wanted: Callable[[], bool]
) -> None:
    """Pass on the bot's pictures, until its track ends. Pictures that no one reads are not converted.

    The newest wins: during a conversion later pictures replace each other, because aiortc's queue has no bound.
    """
    loop = asyncio.get_running_loop()
    newest: list[Any] = []  # the next picture, if there is one
    failed = False

    async def convert() -> None:
        nonlocal failed
        while newest:
            try:
                on_video(await loop.run_in_executor(None, _frame_of, newest.pop()))
            except Exception:  # such as no thread, or no memory: the next picture may pass
                if not failed:
                    logger.exception("A picture of the bot could not be handed on; later ones are not reported")
                failed = True

    converting = loop.create_task(convert())
    try:
        while True:
            picture: Any = await track.recv()
            if wanted():
                newest[:] = [picture]
                if converting.done():
                    converting = loop.create_task(convert())
    except MediaStreamError:
        await converting
    finally:
        converting.cancel()


def _frame_of(picture: Any) -> VideoFrame:
    return VideoFrame(
        image=converted(picture, "rgb24").to_ndarray().tobytes(),
        width=picture.width,
        height=picture.height,
        timestamp=monotonic(),
    )
