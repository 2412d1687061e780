"""Protocols of sources and sinks, the frames and queues between them, and the lease of a session on each.

Audio is PCM everywhere: signed 16-bit little endian, mono, as bytes. Images are rows of RGB pixels.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..errors import DeviceError, MissingExtraError
from ..protocol.record import Record
from ..protocol.validation import BOOL, BYTES, COUNT, NAME, NUMBER, STRING

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class AudioSource(Protocol):
    """A source of the user's voice.

    A custom source is read up to 1 s ahead on its own thread, which may block. Reading starts when the bot is ready and
    the microphone is on, pauses while the microphone is muted, and stops when the source or the session ends. Then
    `close()` is called on the same thread. The next session reads the same object again, so a source with a start
    returns to it in `close()`. If a `read()` is still blocked when the session has ended, it is abandoned: its result
    is ignored and `close()` is not called. An exception is reported as `device_error` and ends the source, not the
    session.

    A class need not derive from this one. A derived class may assign `sample_rate_hz` in `__init__()`; type checkers
    then want its annotation: `self.sample_rate_hz: int = 16_000`.

    Attributes:
        sample_rate_hz (hertz): Sample rate of the audio from `read()`. Read at the start of a session only.
    """

    if TYPE_CHECKING:  # a property at run time would refuse the assignment in a class that derives from this one

        @property
        def sample_rate_hz(self) -> int:
            """The samples per second."""

    def read(self, frames: int) -> bytes:
        """Return up to `frames` samples of PCM, at least one; `b""` ends the source."""

    def close(self) -> None:
        """Free the resources of `read()`; the session has ended."""


class AudioSink(Protocol):
    """A sink of the bot's voice.

    A custom sink is called by the threads that run handlers, one call at a time. It may block, which delays only its
    own audio. It gets all of the bot's audio, in order, at any speed: up to the client's `max_queued_audio_bytes` are
    queued for it. Beyond that limit the oldest audio is dropped, counted in `stats().speaker_dropped_seconds`, logged,
    and reported by the event `audio_dropped`. When the session ends, the sink gets the queued audio for up to 3 s, as
    long as it takes audio; then `close()` is called. If a call does not return within 1.5 s at the end, it is abandoned
    and `close()` is not called. An exception is reported as `device_error` and ends the sink, not the session.

    A sink that records may have an attribute `is_recorder` that is True, as `WavSink` has. An interruption then
    discards nothing: `drop()` is not called, and the queued audio is still written. Queued audio frames are joined, so
    one `write()` may take several. If the bot was never ready, `close()` is not called, so that a failed `connect()`
    leaves an older recording unchanged.
    """

    def write(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Take the next audio frame of the bot, at the bot's rate."""

    def drop(self) -> None:
        """Discard the audio that was written and not yet played; the user has interrupted the bot."""

    def close(self) -> None:
        """Finish; the session has ended and writes nothing more, but the next session may."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class VideoFrame(Record):
    """One image.

    Attributes:
        image: Rows of pixels from the top down, without padding. "RGB" has three bytes a pixel, red first.
        width: Width in pixels.
        height: Height in pixels.
        format: Layout of a pixel: "RGB" in all images that this package makes. A custom source may use another one if
            the transport and the readers of the track know it.
        timestamp (seconds): Time of Python's monotonic clock at which it was captured, or arrived from the bot.

    Raises:
        ValueError: The size of an "RGB" image does not match `width` and `height`.
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
        """Return the image as a read-only array of shape (height, width, 3), without a copy.

        OpenCV has blue first: `cv2.cvtColor(frame.to_numpy(), cv2.COLOR_RGB2BGR)`.

        Raises:
            MissingExtraError: numpy is not installed; the extra `video` installs it.
            ValueError: The format is not "RGB".
        """
        if self.format != "RGB":
            raise ValueError(f"Cannot convert a {self.format!r} image to an array, only RGB; use the bytes of `image`")
        np = _numpy("VideoFrame.to_numpy()", "video")
        array: NDArray[numpy.uint8] = np.frombuffer(self.image, np.uint8).reshape(self.height, self.width, 3)
        return array


class VideoSource(Protocol):
    """A source of the user's video.

    A custom source is read on its own thread, which may block, while the camera is on: as fast as it returns, at most
    60 times a second. When the camera is turned off, and at the end of the session, `close()` is called on the same
    thread. Release the device there, so that its light turns off. It may be read again afterwards. If a `read()` is
    still blocked when the session has ended, it is abandoned: its result is ignored, `close()` is not called, and no
    session can use the source until it returns. An exception is reported as `device_error` and ends the source until
    the camera is turned on again, not the session.
    """

    def read(self) -> VideoFrame | None:
        """Wait for the next image and return it; None ends the source until the camera is turned on again."""

    def close(self) -> None:
        """Release the device: the camera is turned off, or the source or the session has ended."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MediaDeviceInfo(Record):
    """A device of this machine.

    Attributes:
        device_id: Id that `update_mic()`, `update_speaker()`, `update_cam()` and the options take.
        kind: "audioinput", "audiooutput" or "videoinput".
        label: Display name.
        group_id: The same for devices of one physical unit; "" where the system does not report it, as PortAudio
            never does.
        is_default: True if it was the system's default when the list was made; ignored by comparisons.
    """

    device_id: str = attrs.field(validator=STRING)
    kind: str = attrs.field(validator=STRING)
    label: str = attrs.field(validator=STRING)
    group_id: str = attrs.field(default="", validator=STRING)
    is_default: bool = attrs.field(default=False, eq=False, validator=BOOL)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class AudioFrame(Record):
    """Consecutive samples of audio.

    Attributes:
        pcm: Signed 16-bit little endian samples.
        sample_rate_hz (hertz): Sample rate of each channel.
        timestamp (seconds): Time of Python's monotonic clock at which it was sent to, or arrived from, the bot.
        num_channels: Interleaved channels.
    """

    pcm: bytes
    sample_rate_hz: int
    timestamp: float
    num_channels: int = 1

    @property
    def duration(self) -> float:
        """The duration in seconds."""
        return len(self.pcm) / (2 * self.num_channels * self.sample_rate_hz)

    def to_numpy(self) -> NDArray[numpy.int16]:
        """Return the samples as a read-only array of shape (samples, channels), without a copy.

        Raises:
            MissingExtraError: numpy is not installed; the extra `resample` installs it.
        """
        np = _numpy("to_numpy()", "resample")  # of the extras with numpy it needs no compiler
        array: NDArray[numpy.int16] = np.frombuffer(self.pcm, "<i2").reshape(-1, self.num_channels)
        return array


def _numpy(feature: str, extra: str) -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
    return numpy


F = TypeVar("F")


class FrameQueue(Generic[F]):
    """A queue of frames from a thread that must not block to one that may.

    Beyond the limit the oldest frames are dropped and counted; the newest is always kept. A run of losses starts with
    the first dropped frame and ends when the queue is empty. One thread gets; one thread at a time puts and clears.

    Args:
        limit: capacity, in the unit of `size`.
        size: returns how much of the capacity a frame takes.

    Attributes:
        notifier: notified at each change, for a thread that waits for more than the next frame.
    """

    def __init__(self, limit: float, size: Callable[[F], float]) -> None:
        # The tolerance lets 50 frames of 20 ms fit into 1 s although their sum in floating point may exceed it.
        self._capacity = self._limit = limit + 1e-6
        self._size = size
        self._burst = self._window = 0.0  # see `shrink()`
        # Both sides change the deque in atomic steps, and each of the other fields is written by one side only. There
        # is no lock because a signal handler could wait for it on the getting thread while that thread holds it.
        self._frames: deque[tuple[int, F, float]] = deque()  # with the generation and size of each frame
        self.notifier: Notifier = Notifier()
        self._put = 0.0  # without the dropped frames
        self._got = 0.0
        self._generation = 0
        self._ended = False
        self._dropped = 0
        self._losing = False  # during a run of losses

    @property
    def dropped(self) -> int:
        """The number of frames lost because they were not fetched in time."""
        return self._dropped

    def shrink(self, limit: float, burst: float = 0.0) -> None:
        """Hold no more than `limit` from the next frame on. Any thread.

        Audio that has arrived within `limit` seconds may exceed the limit, up to `burst`, because some bots send faster
        than they speak.
        """
        self._burst, self._window = min(self._capacity, burst), limit
        self._limit = min(self._capacity, limit + 1e-6)

    @property
    def waiting(self) -> float:
        """How much is queued, in the unit of `size`. Any thread."""
        return max(0.0, self._put - self._got)

    @property
    def generation(self) -> int:
        """The current generation, which grows with each `clear()`."""
        return self._generation

    @property
    def exhausted(self) -> bool:
        """True if the queue has ended and is empty."""
        return self._ended and not self._frames

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: F) -> bool:
        """Append a frame without blocking; does nothing after `end()`.

        Returns:
            True if a run of losses starts with this frame.
        """
        if self._ended:
            return False
        if not self._frames:
            self._losing = False
        size = self._size(frame)
        self._frames.append((self._generation, frame, size))
        self._put += size
        begins = False
        while self._put - self._got > self._limit and len(self._frames) > 1 and not self._may_burst(frame):
            if (oldest := self._take()) is not None:
                self._put -= oldest[2]
                self._drop(oldest[1])
                begins, self._losing = begins or not self._losing, True
        self.notifier.notify_all()
        return begins

    def _may_burst(self, newest: F) -> bool:  # noqa: ARG002 - for subclasses whose frames have a time
        """Return whether the queue may exceed its limit, because all its frames have arrived in so short a time."""
        return False

    def get(self) -> F | None:
        """Wait for the next frame and return it; None if the queue has ended and is empty."""
        while True:
            self.notifier.wait_for(lambda: self._frames or self._ended, Deadline(None))
            ended = self._ended
            _, frame = self.poll()
            if frame is not None or ended:
                return frame

    def poll(self) -> tuple[int, F | None]:
        """Return the current generation and its next frame, None if there is no frame; does not block."""
        while True:
            try:
                generation, frame, size = self._frames.popleft()
            except IndexError:
                return self._generation, None
            self._got += size
            # Read after the frame is taken, so that a frame put after a concurrent `clear()` does not count as stale.
            if generation == (current := self._generation):
                return current, frame

    def get_queued(self) -> list[F]:
        """Remove and return the queued frames, oldest first; called on the thread that gets, does not block."""
        got = []
        with contextlib.suppress(IndexError):
            while True:
                generation, frame, size = self._frames.popleft()
                self._got += size
                if generation == self._generation:
                    got.append(frame)
        return got

    def put_back(self, generation: int, frame: F) -> None:
        """Put the last fetched frame back as the next one; called on the thread that gets."""
        size = self._size(frame)
        self._got -= size
        self._frames.appendleft((generation, frame, size))

    def queued(self) -> list[F]:
        """Return the queued frames, oldest first, and keep them queued; does not block."""
        return [frame for _, frame, _ in self._frames.copy()]

    def clear(self) -> None:
        """Discard the queued frames, without counting them as dropped, and start a new generation."""
        self._generation += 1
        while (item := self._take()) is not None:
            self._put -= item[2]
        self.notifier.notify_all()

    def drop_all(self) -> None:
        """Drop the queued frames and count them; called after `end()`."""
        while (item := self._take()) is not None:
            self._put -= item[2]
            self._drop(item[1])

    def take_all(self) -> list[F]:
        """Remove and return the queued frames, oldest first; called on the side of `put()`, does not block."""
        taken = []
        while (item := self._take()) is not None:
            self._put -= item[2]
            if item[0] == self._generation:
                taken.append(item[1])
        return taken

    def end(self) -> None:
        """Refuse further frames; the queued ones can still be fetched."""
        self._ended = True
        self.notifier.notify_all()

    def _drop(self, frame: F) -> None:  # noqa: ARG002 - for subclasses that count more
        """Count a dropped frame."""
        self._dropped += 1

    def _take(self) -> tuple[int, F, float] | None:
        try:
            return self._frames.popleft() if self._frames else None
        except IndexError:  # the other side was faster
            return None


# Each frame counts for at least this many seconds, because the limit protects memory and a bot may send frames of
# one sample.
_MIN_FRAME_DURATION = 0.001


def _seconds_of(frame: AudioFrame) -> float:
    return max(len(frame.pcm) / (2 * frame.num_channels * frame.sample_rate_hz), _MIN_FRAME_DURATION)


class AudioQueue(FrameQueue[AudioFrame]):
    """A queue of audio frames; `limit` is in seconds.

    Attributes:
        dropped_seconds: seconds of audio lost because it was not fetched in time.
    """

    def __init__(self, limit: float) -> None:
        super().__init__(limit, _seconds_of)
        self.dropped_seconds: float = 0.0

    def add(self, pcm: bytes, sample_rate_hz: int, timestamp: float) -> float:
        """Append audio, as `put()` does; after `end()` count it as dropped.

        Returns:
            The seconds dropped for it if a run of losses starts, else 0.0.
        """
        before = self.dropped_seconds
        frame = AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=timestamp)
        if self._ended:
            self._drop(frame)
        begins = self.put(frame)
        return self.dropped_seconds - before if begins else 0.0

    def _may_burst(self, newest: AudioFrame) -> bool:
        if self._put - self._got > self._burst:
            return False
        try:
            return newest.timestamp - self._frames[0][1].timestamp < self._window
        except IndexError:  # the other side was faster
            return True

    def _drop(self, frame: AudioFrame) -> None:
        super()._drop(frame)
        self.dropped_seconds += frame.duration


class VideoQueue(FrameQueue[VideoFrame]):
    """A queue of images; `limit` is their number."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit, lambda _: 1)


def file_error(what: str, device: str, error: OSError) -> DeviceError:
    """Return the `DeviceError` for a file that cannot be used."""
    kind = "unknown"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        kind = "not-found"
    elif isinstance(error, PermissionError):
        kind = "permissions"
    return DeviceError(f"{what}: {error.strerror or error}", devices=(device,), type=kind, details=str(error))
