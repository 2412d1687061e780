"""What sources and sinks are, what travels between them, and who uses one at the moment.

Audio is PCM everywhere: signed 16-bit little endian, mono, as bytes. Pictures are rows of RGB pixels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.lifecycle import fork_generation
from ..errors import DeviceError, MissingExtraError
from ..protocol.validation import BOOL, BYTES, COUNT, NAME, NUMBER, STRING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


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

    A sink of your own is called on a thread of its own, which may block. It gets all that the bot sends, in order,
    however fast it comes: up to the client's `max_queued_audio_bytes` wait for it. Only beyond that is the oldest audio
    dropped, counted in `stats().speaker_dropped_seconds`, logged, and reported by the event `audio_dropped`. When the
    session ends, the sink gets what waits, as long as it takes audio and for up to 3 s; then `close()` is called. A
    call that does not return for 1.5 s at the end is abandoned, and `close()` is not called. An exception is reported
    as `device_error` and ends the sink, not the session.

    A sink that makes a record may have an attribute `is_recorder` that is True, as `WavSink` has. An interruption
    then voids nothing: `drop()` is not called, and what waits is written all the same. Audio frames that wait are
    joined, so that one `write()` may take several.
    """

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Take the next piece of the bot's audio, at the bot's rate."""

    def drop(self) -> None:
        """The user interrupted the bot: forget what was written and is not yet heard."""

    def close(self) -> None:
        """The session is over, and nothing more is written; the next session may write again."""


@attrs.frozen(kw_only=True)
class VideoFrame:
    """One image.

    Attributes:
        image: rows of pixels from the top down, without padding. "RGB" has three bytes a pixel, red first.
        width: in pixels.
        height: in pixels.
        format: layout of a pixel: "RGB" in all that this package makes. A source of your own may use another, if the
            transport and whoever reads the track know it.
        timestamp: monotonic seconds: when it was taken, or arrived from the bot.

    Raises:
        ValueError: an "RGB" image of another size than `width` and `height` say.
    """

    image: bytes = attrs.field(repr=lambda image: f"<{len(image)} bytes>", validator=BYTES)
    width: int = attrs.field(validator=COUNT)
    height: int = attrs.field(validator=COUNT)
    format: str = attrs.field(default="RGB", validator=NAME)
    timestamp: float = attrs.field(validator=NUMBER)

    def __attrs_post_init__(self) -> None:
        if self.format == "RGB" and len(self.image) != 3 * self.width * self.height:
            raise ValueError(
                "image must fit its width and height: "
                f"an RGB image of {self.width} x {self.height} pixels has {3 * self.width * self.height} bytes, "
                f"not {len(self.image)}"
            )

    def to_numpy(self) -> NDArray[numpy.uint8]:
        """The image as an array of the shape (height, width, 3), not copied and therefore not to be written to.

        OpenCV has blue first: `cv2.cvtColor(frame.to_numpy(), cv2.COLOR_RGB2BGR)`.

        Raises:
            MissingExtraError: numpy is not installed; the extra `video` brings it.
            ValueError: the format is not "RGB".
        """
        if self.format != "RGB":
            raise ValueError(f"Only RGB images have this shape, not {self.format!r} ones; `image` has the bytes")
        np = _numpy("VideoFrame.to_numpy()", "video")
        array: NDArray[numpy.uint8] = np.frombuffer(self.image, np.uint8).reshape(self.height, self.width, 3)
        return array


class VideoSource(Protocol):
    """Where the user's picture comes from.

    A source of your own is read on a thread of its own, which may block, while the camera is on: as fast as it returns,
    at most 60 times a second. When the camera is turned off, and at the end of the session, `close()` is called on the
    same thread; so free the device there, that its light goes out. It may be read again afterwards. A `read()` that
    hangs past the end of the session is abandoned: what it returns is ignored and `close()` is not called. An exception
    is reported as `device_error` and ends the source, until the camera is turned on anew, and not the session.
    """

    def read(self) -> VideoFrame | None:
        """Wait for the next image and return it; None ends the source, until the camera is turned on anew."""

    def close(self) -> None:
        """It is not read any more: the camera is turned off, the source has ended, or the session."""


@attrs.frozen(kw_only=True)
class MediaDeviceInfo:
    """A device of this machine.

    Attributes:
        device_id: what `update_mic()`, `update_speaker()`, `update_cam()` and the options take.
        kind: "audioinput", "audiooutput" or "videoinput".
        label: name for humans.
        group_id: the same for devices of one physical unit; "" where the system does not tell, as PortAudio never does.
        is_default: it was the system's default when the list was made; the same device all the same if it is not.
    """

    device_id: str = attrs.field(validator=STRING)
    kind: str = attrs.field(validator=STRING)
    label: str = attrs.field(validator=STRING)
    group_id: str = attrs.field(default="", validator=STRING)
    is_default: bool = attrs.field(default=False, eq=False, validator=BOOL)


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

    def to_numpy(self) -> NDArray[numpy.int16]:
        """The samples as an array of the shape (samples, channels), not copied and therefore not to be written to.

        Raises:
            MissingExtraError: numpy is not installed; the extra `audio` brings it.
        """
        np = _numpy("AudioFrame.to_numpy()", "audio")
        array: NDArray[numpy.int16] = np.frombuffer(self.pcm, "<i2").reshape(-1, self.num_channels)
        return array


def _numpy(feature: str, extra: str) -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
    return numpy


F = TypeVar("F", bound=AudioFrame | VideoFrame)


class FrameQueue(Generic[F]):
    """Frames on their way from a thread that must not wait to one that may.

    Beyond the limit the oldest frames are dropped and counted; the newest is always kept. A run of losses begins with
    the first frame that is dropped, and ends when the queue is empty. One thread gets; one thread at a time puts and
    clears.

    Args:
        limit: how much may wait.
        size: how much a frame is of that.

    Attributes:
        notifier: rung at each change, for a thread that waits for more than the next frame.
    """

    def __init__(self, limit: float, size: Callable[[F], float]) -> None:
        self._limit = limit + 1e-6  # 50 frames of 20 ms are 1 s, whatever their sum in floating point
        self._size = size
        # Both sides change the deque in single steps, and each of the other fields is written by one side; so there is
        # no lock, which the getting thread could hold while a signal handler on it waits for something.
        self._frames: deque[tuple[int, F]] = deque()  # with the generation they belong to
        self.notifier: Notifier = Notifier()
        self._put = 0.0  # less those dropped
        self._got = 0.0
        self._generation = 0
        self._ended = False
        self._dropped = 0
        self._losing = False  # a run of losses has begun

    @property
    def dropped(self) -> int:
        """Frames lost because they were not fetched in time."""
        return self._dropped

    @property
    def generation(self) -> int:
        """Grows with each `clear()`."""
        return self._generation

    @property
    def exhausted(self) -> bool:
        """Has ended and is empty."""
        return self._ended and not self._frames

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: F) -> bool:
        """Append a frame; never waits. Ignored after `end()`.

        Returns:
            Whether a run of losses begins with it.
        """
        if self._ended:
            return False
        if not self._frames:
            self._losing = False
        self._frames.append((self._generation, frame))
        self._put += self._size(frame)
        begins = False
        while self._put - self._got > self._limit and len(self._frames) > 1:
            if (oldest := self._take()) is not None:
                self._put -= self._size(oldest[1])
                self._drop(oldest[1])
                begins, self._losing = begins or not self._losing, True
        self.notifier.notify_all()
        return begins

    def get(self, generation: int = 0) -> tuple[int, F | None] | None:
        """Wait for the next frame.

        Args:
            generation: the generation known to the caller.

        Returns:
            The generation that is current and the next frame of it, which is None if the generation is new and
            nothing has come since. None if the queue has ended and is empty.
        """
        while True:
            self.notifier.wait_for(
                lambda: self._frames or self._ended or self._generation != generation, Deadline(None)
            )
            ended = self._ended
            current, frame = self.poll()
            if frame is not None or current != generation:
                return current, frame
            if ended:
                return None

    def poll(self) -> tuple[int, F | None]:
        """The generation that is current, and the next frame of it if there is one. Never waits."""
        while True:
            item = self._take()
            current = self._generation  # after the frame: one that was put after a `clear()` meanwhile is not stale
            if item is None:
                return current, None
            self._got += self._size(item[1])
            if item[0] == current:
                return item

    def put_back(self, generation: int, frame: F) -> None:
        """On the thread that gets: the frame that it got last is the next one again."""
        self._got -= self._size(frame)
        self._frames.appendleft((generation, frame))

    def queued(self) -> list[F]:
        """What is queued now, the oldest first; it stays queued. Never waits."""
        return [frame for _, frame in self._frames.copy()]

    def clear(self) -> None:
        """Forget what is queued and begin a new generation; not counted as dropped."""
        self._generation += 1
        while (item := self._take()) is not None:
            self._put -= self._size(item[1])
        self.notifier.notify_all()

    def drop_all(self) -> None:
        """After `end()`: drop what is queued, and count it."""
        while (item := self._take()) is not None:
            self._put -= self._size(item[1])
            self._drop(item[1])

    def take_all(self) -> list[F]:
        """What is queued now, the oldest first, which nobody else gets then. On the side of `put()`; never waits."""
        taken = []
        while (item := self._take()) is not None:
            self._put -= self._size(item[1])
            if item[0] == self._generation:
                taken.append(item[1])
        return taken

    def end(self) -> None:
        """Take nothing more; what is queued can still be fetched."""
        self._ended = True
        self.notifier.notify_all()

    def _drop(self, frame: F) -> None:  # noqa: ARG002 - for queues that count more
        """Count a frame that is lost."""
        self._dropped += 1

    def _take(self) -> tuple[int, F] | None:
        try:
            return self._frames.popleft()
        except IndexError:
            return None


# What a frame counts for, at least: a bot may send one sample in each, and it is memory that is limited.
_LEAST_DURATION = 0.001


# What a frame takes in memory beside its samples.
_FRAME_BYTES = 256


def _seconds_of(frame: AudioFrame) -> float:
    return max(frame.duration, _LEAST_DURATION)


def bytes_of(frame: AudioFrame) -> int:
    """What a frame takes in memory."""
    return len(frame.pcm) + _FRAME_BYTES


class AudioQueue(FrameQueue[AudioFrame]):
    """Audio on its way; `limit` is in seconds, unless `size` measures in another unit.

    Attributes:
        dropped_seconds: audio lost because it was not fetched in time.
    """

    def __init__(self, limit: float, size: Callable[[AudioFrame], float] = _seconds_of) -> None:
        super().__init__(limit, size)
        self.dropped_seconds: float = 0.0

    def add(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> float:
        """Append audio, as `put()` does. Returns the seconds dropped for it if a run of losses begins, else 0.0."""
        before = self.dropped_seconds
        begins = self.put(AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=timestamp))
        return self.dropped_seconds - before if begins else 0.0

    def _drop(self, frame: AudioFrame) -> None:
        super()._drop(frame)
        self.dropped_seconds += frame.duration


class VideoQueue(FrameQueue[VideoFrame]):
    """Images on their way; `limit` is their number."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, lambda _: 1)


# Who uses which source or sink. The fork generation is part of the key because a child inherits the entries of
# sessions that are live only in its parent. Only single dict operations touch it, which are atomic with and without a
# GIL; a lock could be inherited locked.
_users: dict[tuple[int, int], Lease] = {}


class Lease:
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
