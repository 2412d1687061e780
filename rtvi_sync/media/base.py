"""What sources and sinks are, what travels between them, and who uses one at the moment.

Audio is PCM everywhere: signed 16-bit little endian, mono, as bytes.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.gate import Bell
from ..concurrency.lifecycle import fork_generation
from ..errors import DeviceError


class AudioSource(Protocol):
    """Where the user's voice comes from.

    A source of your own is read ahead of time, by up to 1 s, on a thread of its own, which may block. It is read from
    the moment the bot is ready, never while muted, until it ends or the session does; then `close()` is called on the
    same thread. The next session reads the same object again, so a source that has a beginning returns to it in
    `close()`. A `read()` that hangs past the end of the session is abandoned: what it returns is ignored and `close()`
    is not called. An exception is reported as `device_error` and ends the source, not the session.
    """

    @property
    def sample_rate_hz(self) -> int:
        """Samples per second of what `read()` returns; asked once per session."""

    def read(self, frames: int) -> bytes:
        """Return up to `frames` samples of PCM, at least one; `b""` ends the source."""

    def close(self) -> None:
        """The session is over."""


class AudioSink(Protocol):
    """Where the bot's voice goes.

    A sink of your own is called on a thread of its own, which may block; what piles up meanwhile beyond 1 s of audio is
    dropped, the oldest first. A call that hangs past the end of the session is abandoned and `close()` is not called.
    An exception is reported as `device_error` and ends the sink, not the session.
    """

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Take the next piece of the bot's audio, at the bot's rate."""

    def drop(self) -> None:
        """The user interrupted the bot: forget what was written and is not yet heard."""

    def close(self) -> None:
        """The session is over and everything was written; the next session may write again."""


@attrs.frozen(kw_only=True)
class VideoFrame:
    """One image.

    Attributes:
        image: rows of pixels without padding.
        width: in pixels.
        height: in pixels.
        format: layout of a pixel, such as "RGB".
        timestamp: monotonic seconds.
    """

    image: bytes
    width: int
    height: int
    format: str
    timestamp: float


class VideoSource(Protocol):
    """Where the user's picture comes from. Called on a thread of its own, which may block."""

    def read(self) -> VideoFrame | None:
        """Return the next image; None ends the source."""

    def close(self) -> None:
        """The session is over."""


@attrs.frozen(kw_only=True)
class MediaDeviceInfo:
    """A device of this machine.

    Attributes:
        device_id: what `update_mic()`, `update_speaker()`, `update_cam()` and the options take.
        kind: "audioinput", "audiooutput" or "videoinput".
        label: name for humans.
        group_id: the same for devices of one physical unit; "" if unknown.
    """

    device_id: str
    kind: str
    label: str
    group_id: str = ""


@attrs.frozen(kw_only=True)
class AudioFrame:
    """A piece of audio.

    Attributes:
        pcm: signed 16-bit little endian samples.
        sample_rate_hz: samples per second and channel.
        timestamp: monotonic seconds: when it was sent to, or arrived from, the bot.
        num_channels: interleaved channels.
    """

    pcm: bytes
    sample_rate_hz: int
    timestamp: float
    num_channels: int = 1

    @property
    def duration(self) -> float:
        """Seconds that the audio lasts."""
        return len(self.pcm) / (2 * self.num_channels * self.sample_rate_hz)


class AudioQueue:
    """Frames on their way from a thread that must not wait to one that may.

    Beyond `limit` seconds of audio the oldest frames are dropped and counted; the newest is always kept. One thread
    gets; one thread at a time puts and clears.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit + 1e-6  # 50 frames of 20 ms are 1 s, whatever their sum in floating point
        # Both sides change the deque in single steps, and each of the other fields is written by one side; so there is
        # no lock, which the getting thread could hold while a signal handler on it waits for something.
        self._frames: deque[tuple[int, AudioFrame]] = deque()  # with the generation they belong to
        self._bell = Bell()
        self._seconds_put = 0.0  # less those dropped
        self._seconds_got = 0.0
        self._generation = 0
        self._ended = False
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Frames lost because they were not fetched in time."""
        return self._dropped

    def put(self, frame: AudioFrame) -> None:
        """Append a frame; never waits. Ignored after `end()`."""
        if self._ended:
            return
        self._frames.append((self._generation, frame))
        self._seconds_put += frame.duration
        while self._seconds_put - self._seconds_got > self._limit and len(self._frames) > 1:
            if (oldest := self._take()) is not None:
                self._seconds_put -= oldest[1].duration
                self._dropped += 1
        self._bell.ring()

    def get(self, generation: int = 0) -> tuple[int, AudioFrame | None] | None:
        """Wait for the next frame.

        Args:
            generation: the generation known to the caller.

        Returns:
            The generation that is current and the next frame of it, which is None if the generation is new and
            nothing has come since. None if the queue has ended and is empty.
        """
        while True:
            self._bell.wait_for(lambda: self._frames or self._ended or self._generation != generation, Deadline(None))
            current = self._generation
            if (item := self._take()) is not None:
                self._seconds_got += item[1].duration
                if item[0] == current:
                    return item
            elif current != generation:
                return current, None
            elif self._ended:
                return None

    def queued(self) -> list[AudioFrame]:
        """What is queued now, the oldest first; it stays queued. Never waits."""
        return [frame for _, frame in self._frames.copy()]

    def clear(self) -> None:
        """Forget what is queued and begin a new generation; not counted as dropped."""
        self._generation += 1
        while (item := self._take()) is not None:
            self._seconds_put -= item[1].duration
        self._bell.ring()

    def end(self) -> None:
        """Take nothing more; what is queued can still be fetched."""
        self._ended = True
        self._bell.ring()

    def _take(self) -> tuple[int, AudioFrame] | None:
        try:
            return self._frames.popleft()
        except IndexError:
            return None


# Who uses which source or sink. The fork generation is part of the key because a child inherits the entries of
# sessions that are live only in its parent. Only single dict operations touch it, which are atomic with and without a
# GIL; a lock could be inherited locked.
_users: dict[tuple[int, int], Claim] = {}


class Claim:
    """The right of one session to use a source or sink.

    Raises:
        DeviceError: another session uses it; `.type` is "in-use".
    """

    def __init__(self, thing: object, device: str) -> None:
        self._thing = thing  # kept alive, so that its id is not given to another object
        self._key = (fork_generation(), id(thing))
        if _users.setdefault(self._key, self) is not self:
            raise DeviceError(
                f"This {type(thing).__name__} is used by another session; give each client a {device} of its own",
                devices=(device,),
                type="in-use",
            )

    def release(self) -> None:
        """Give the right back; call it once."""
        _users.pop(self._key, None)


def file_error(what: str, device: str, error: OSError) -> DeviceError:
    """The `DeviceError` for a file that cannot be used."""
    kind = "unknown"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        kind = "not-found"
    elif isinstance(error, PermissionError):
        kind = "permissions"
    return DeviceError(f"{what}: {error.strerror or error}", devices=(device,), type=kind, details=str(error))
