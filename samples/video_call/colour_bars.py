"""The user's picture if there is no camera."""

import time

import numpy

from rtvi_sync.media import VideoFrame

WIDTH, HEIGHT, FPS = 320, 240, 15
# White, yellow, cyan, green, magenta, red, blue and black: a bit for each of red, green and blue.
COLOURS = [[255 * (bits >> shift & 1) for shift in (2, 1, 0)] for bits in (7, 6, 3, 2, 5, 4, 1, 0)]


class ColourBars:
    """Eight bars, and a gray square that moves over them: a source of video is an object with these two methods."""

    def __init__(self) -> None:
        bars = numpy.repeat(numpy.array(COLOURS, numpy.uint8), WIDTH // len(COLOURS), axis=0)
        self._bars = numpy.tile(bars, (HEIGHT, 1, 1))
        self._left = 0

    def read(self) -> VideoFrame:
        """Wait for the next picture, and return it."""
        time.sleep(1 / FPS)
        self._left = (self._left + 4) % (WIDTH - 40)
        image = self._bars.copy()
        image[100:140, self._left : self._left + 40] = 128
        return VideoFrame(image=image.tobytes(), width=WIDTH, height=HEIGHT, timestamp=time.monotonic())

    def close(self) -> None:
        """Release nothing: the camera was turned off."""
