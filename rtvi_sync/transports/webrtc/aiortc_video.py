"""Pictures on aiortc: the camera and the screen to the bot, and what the bot shows."""

from __future__ import annotations

import asyncio
import fractions
import time
from collections.abc import Callable
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from ...concurrency.future import Future
from ...media import VideoFrame

_CLOCK_HZ = 90_000
_TIME_BASE = fractions.Fraction(1, _CLOCK_HZ)


class PictureTrack(MediaStreamTrack):
    """The camera or the screen: sends a picture when it gets one, and nothing else.

    A track is there from the beginning, because the bot looks at none that is added later.
    """

    kind = "video"

    def __init__(self) -> None:
        super().__init__()
        self._next: tuple[Any, Future[bool]] | None = None
        self._arrived = asyncio.Event()
        self._began: float | None = None
        self._last = -1  # the time stamp of the last picture

    def put(self, picture: Any, timestamp: float, taken: Future[bool]) -> None:
        """Send a picture. Called on the loop.

        Args:
            picture: of PyAV.
            timestamp: when it was captured, in monotonic seconds.
            taken: will be True when aiortc has taken it, or False if the track has ended, or a newer one has come.
        """
        self._drop()
        picture.pts, picture.time_base = self._stamp(timestamp), _TIME_BASE
        self._next = picture, taken
        self._arrived.set()
        if self.readyState != "live":
            self._drop()

    async def recv(self) -> Any:
        """Return the next picture; aiortc calls it, and encodes the picture on another thread."""
        while self._next is None:
            if self.readyState != "live":
                raise MediaStreamError
            self._arrived.clear()
            await self._arrived.wait()
        (picture, taken), self._next = self._next, None
        taken.resolve(True)
        return picture

    def _stamp(self, timestamp: float) -> int:
        if self._began is None:
            self._began = timestamp
        self._last = max(self._last + 1, round((timestamp - self._began) * _CLOCK_HZ))
        return self._last

    def _drop(self) -> None:
        if self._next is not None:
            self._next[1].resolve(False)
            self._next = None

    def stop(self) -> None:
        """End the track, and wake whoever waits for it."""
        super().stop()
        self._drop()
        self._arrived.set()


def picture_of(frame: VideoFrame) -> Any:
    """Return a picture of PyAV, for `PictureTrack.put()`, in the format of the encoder."""
    return converted(av.VideoFrame.from_ndarray(frame.to_numpy(), format="rgb24"), "yuv420p")


def converted(picture: Any, pixel_format: str) -> Any:
    """Return a picture in another format.

    On one thread: PyAV keeps a converter for each thread that has used one, and if that has threads of its own, a child
    that is forked hangs in `os.fork()`, where Python 3.12 releases what other threads had.
    """
    return picture.reformat(format=pixel_format, threads=1)


async def read_pictures(
    track: MediaStreamTrack, on_video: Callable[[VideoFrame], None], wanted: Callable[[], bool]
) -> None:
    """Hand on the pictures of the bot, until its track ends; one that nobody reads is not converted."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            picture: Any = await track.recv()
        except MediaStreamError:
            return
        if wanted():
            on_video(await loop.run_in_executor(None, _frame_of, picture))


def _frame_of(picture: Any) -> VideoFrame:
    return VideoFrame(
        image=converted(picture, "rgb24").to_ndarray().tobytes(),
        width=picture.width,
        height=picture.height,
        timestamp=time.monotonic(),
    )
