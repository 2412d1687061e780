"""A faster codec than `wire` for audio frames, of which there are hundreds a second.

The frames of one side differ only in a number, a name with a number, and the samples. So `wire` reads and writes the
first frame. The bytes of this frame are the template by which the others are matched and made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from . import wire

# A frame that contains only audio, up to its samples: length, id, name, length of the samples.
_HEAD: Final = (
    rb"(\x12[\x80-\xff]*[\0-\x7f])(\x08[\x80-\xff]{0,8}[\0-\x7f])?"
    rb"(?:(\x12[\0-\x7f])([ -~]*))?(\x1a[\x80-\xff]*[\0-\x7f])"
)
# Making a template takes as long as decoding a hundred frames. So if all frames differ, only each 64th makes one.
_UPDATE_EVERY: Final = 64


class AudioFrameTemplate:
    """The pattern of the audio frames that one side sends. Used by one thread.

    Attributes:
        size: The size in bytes. Frames of another size do not match.
        match: Matches frames of the same form as the last one that `update()` used; group 1 is the PCM. For each frame
            that matches, `wire.read_frame()` returns the same PCM, sample rate and number of channels.
        sample_rate: The frame's sample rate.
        num_channels: The frame's number of channels.
        seconds: The duration of one frame.
    """

    def __init__(self) -> None:
        self.size: int = 0
        self.match: Callable[[bytes], re.Match[bytes] | None] = re.compile(rb"(?!)").fullmatch
        self.sample_rate: int = 0
        self.num_channels: int = 0
        self.seconds: float = 0.0
        self._others = 0

    def update(self, data: bytes, pcm: bytes, sample_rate: int, num_channels: int) -> None:
        """Make the template from each 64th frame that did not match.

        Args:
            data: The bytes of the frame.
            pcm: Its samples, decoded by `wire`.
            sample_rate: Its sample rate.
            num_channels: Its number of channels.
        """
        others, self._others = self._others, self._others + 1
        if others % _UPDATE_EVERY or not (pcm and sample_rate and num_channels):
            return
        head, tail = re.match(_HEAD, data), _tail(sample_rate, num_channels)
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
    """Return the frame of these samples of one channel, as `wire.write_frame()` writes it."""
    head, tail = _head_and_tail(len(pcm), sample_rate_hz)
    return b"".join((head, pcm, tail))


@functools.lru_cache(maxsize=64)
def _head_and_tail(size: int, sample_rate_hz: int) -> tuple[bytes, bytes]:
    frame = _frame(bytes(size), sample_rate_hz, 1)
    tail = _tail(sample_rate_hz, 1)
    return frame[: len(frame) - size - len(tail)], tail


def _tail(sample_rate: int, num_channels: int) -> bytes:
    """Return the bytes after the samples of a frame."""
    return _frame(b"", sample_rate, num_channels)[2:]  # without the tag of the frame and its length


def _frame(pcm: bytes, sample_rate: int, num_channels: int) -> bytes:
    return wire.write_frame("audio", {"audio": pcm, "sample_rate": sample_rate, "num_channels": num_channels})
