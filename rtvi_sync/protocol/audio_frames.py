"""Frames of audio, of which there are hundreds a second, sooner than `frames` reads and writes them.

What one side sends is alike from frame to frame, but for a number, a name with a number, and the samples. So protobuf
reads and writes one, and the others go by its bytes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from . import frames

# A frame that holds audio and nothing else, up to its samples: how much there is, id, name, how many samples.
_HEAD: Final = re.compile(
    rb"(\x12[\x80-\xff]*[\0-\x7f])(\x08[\x80-\xff]{0,8}[\0-\x7f])?"
    rb"(?:(\x12[\0-\x7f])([ -~]*))?(\x1a[\x80-\xff]*[\0-\x7f])"
)
# To learn a frame takes as long as to read a hundred: of frames that are all different not each one is learned.
_LEARN_EVERY: Final = 64


class AudioFrameTemplate:
    """The frames of audio that one side sends, after the first one. Used by one thread.

    Attributes:
        size: in bytes; frames of another one need not be asked for.
        match: the match of a frame that is like the one that was learned, whose group 1 is its PCM; None of any other.
            Whatever it matches, `frames.content()` reads as the same PCM, and as the next two.
        sample_rate: as in `frames.AudioRawFrame`.
        num_channels: likewise.
        seconds: how long it takes to say.
    """

    def __init__(self) -> None:
        self.size: int = 0
        self.match: Callable[[bytes], re.Match[bytes] | None] = re.compile(rb"(?!)").fullmatch
        self.sample_rate: int = 0
        self.num_channels: int = 0
        self.seconds: float = 0.0
        self._others = 0

    def update(self, data: bytes, pcm: bytes, sample_rate: int, num_channels: int) -> None:
        """Take a frame that did not match for the usual one, now and then.

        Args:
            data: its bytes.
            pcm, sample_rate, num_channels: what protobuf reads in it.
        """
        others, self._others = self._others, self._others + 1
        if others % _LEARN_EVERY or not (pcm and sample_rate and num_channels):
            return
        head, tail = _HEAD.match(data), _tail(sample_rate, num_channels)
        if head is None or data[head.end() :] != pcm + tail:
            return
        frame, id_, named, name, samples = head.groups(b"")
        if named and named[1] != len(name):
            return
        pattern = re.escape(frame)
        if id_:
            pattern += rb"\x08[\x80-\xff]{%d}[\0-\x7f]" % (len(id_) - 2)
        if named:
            pattern += re.escape(named) + rb"[ -~]{%d}" % len(name)
        pattern += re.escape(samples) + rb"(.{%d})" % len(pcm) + re.escape(tail)
        self.size = len(data)
        self.match = re.compile(pattern, re.DOTALL).fullmatch
        self.sample_rate, self.num_channels = sample_rate, num_channels
        self.seconds = len(pcm) / (2 * sample_rate * num_channels)


def encode_audio(pcm: bytes, sample_rate_hz: int) -> bytes:
    """What `frames.encode()` returns for an `AudioRawFrame` with one channel."""
    head, tail = _around(len(pcm), sample_rate_hz)
    return b"".join((head, pcm, tail))


@functools.lru_cache(maxsize=64)
def _around(size: int, sample_rate_hz: int) -> tuple[bytes, bytes]:
    whole = frames.encode(frames.AudioRawFrame(audio=bytes(size), sample_rate=sample_rate_hz))
    tail = _tail(sample_rate_hz, 1)
    return whole[: len(whole) - size - len(tail)], tail


def _tail(sample_rate: int, num_channels: int) -> bytes:
    """What follows the samples of a frame."""
    bare = frames.AudioRawFrame(audio=b"", sample_rate=sample_rate, num_channels=num_channels)
    return frames.encode(bare)[2:]  # without the kind of frame, and how much there is
