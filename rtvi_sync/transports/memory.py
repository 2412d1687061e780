"""A transport inside the process, whose bot is a function. For tests of applications and of this package."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from ..concurrency.abort import AbortSignal
from ..concurrency.clock import monotonic
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.lock import new_lock
from ..concurrency.shield import shielded
from ..errors import DisconnectedError
from ..media import AudioFrame, VideoFrame
from ..media.pcm import RATE, checked_audio
from ..messages import RTVIMessage
from ..protocol.states import CloseInfo
from ..protocol.validation import BOOL, BYTES, COUNT, function_taking, instance_of, is_async
from .base import Inbound, Transport

Bot = Callable[["MemoryTransport", RTVIMessage], Iterable[Inbound] | None]

# Number of sent audio and video frames that are kept: 1 min in frames of 20 ms, and 1 s at 30 frames/s.
_KEPT_AUDIO, _KEPT_VIDEO = 3000, 30

_BOT = attrs.evolve(
    function_taking("transport", "message"),
    has_type=lambda bot: callable(bot) and not is_async(bot),  # it may be a generator function
)
_FRAME = instance_of("a VideoFrame", VideoFrame)
_INFO = instance_of("a CloseInfo", CloseInfo).or_none


def ready_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Inbound]:
    """Be ready at once, answer a client-message with its own data, and end the connection on disconnect-bot."""
    if message.type == "client-ready":
        about = {"library": "memory", "library_version": "1"}
        yield RTVIMessage("bot-ready", {"version": "2.2.0", "about": about}, message.id)
    elif message.type == "client-message":
        yield RTVIMessage("server-response", message.data, message.id)
    elif message.type == "disconnect-bot":
        transport.end(CloseInfo(code=1000, initiator="server"))


class MemoryTransport(Transport):
    """A transport that calls a function, `bot`, with each message, on the thread that sends it.

    Args:
        bot: Function that takes the transport and the message, and returns the bot's messages or None. Several threads
            may call it at once, if several send. Its exceptions are raised to the sender.
        audio: True to carry audio: the client then opens its microphone and its speaker.
        video: True to carry video: the client can then turn its camera on and share its screen.

    Attributes:
        sent: All messages that were sent to the bot.
        sent_audio: The last minute of the audio that was sent to the bot.
        sent_video, sent_screen: The last images of the camera and of the screen that were sent to the bot, 30 at most.
        auth_bundle: The argument of the last `connect()`.
    """

    name = "memory"

    def __init__(self, bot: Bot = ready_bot, *, audio: bool = False, video: bool = False) -> None:
        _BOT.check(bot=bot)
        BOOL.check(audio=audio, video=video)
        self._bot = bot
        self.supports_audio = audio
        self.supports_video = video
        self.sent: list[RTVIMessage] = []
        self.sent_audio: deque[AudioFrame] = deque(maxlen=_KEPT_AUDIO)
        self.sent_video: deque[VideoFrame] = deque(maxlen=_KEPT_VIDEO)
        self.sent_screen: deque[VideoFrame] = deque(maxlen=_KEPT_VIDEO)
        self.auth_bundle: Any = None
        # Guards the three fields below. Any thread may hold it, for a few assignments. Re-entrant, because a finalizer
        # may send in between.
        self._lock = new_lock()
        self._open = False
        self._arrived: deque[Inbound] = deque()
        self._delivering = False  # a thread is delivering the messages that have arrived
        register_for_fork(self)

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the connection."""
        with self._lock:
            abort.raise_if_aborted()  # a delayed call may arrive when the next session has started
            self.auth_bundle = auth_bundle
            self._open = True
            self._arrived.clear()

    def after_fork_in_child(self) -> None:
        """Forget the parent's connection, and replace the lock, whose holder does not exist in the child."""
        self._lock = new_lock()
        self._open = self._delivering = False

    def disconnect(self) -> None:
        """End the connection."""
        with self._lock:
            self._open = False

    def send_message(self, message: RTVIMessage) -> None:
        """Call the bot with `message` and deliver its answers."""
        self.serialize(message)
        self._check_open()
        self.sent.append(message)
        for answer in self._bot(self, message) or ():
            self.receive(answer)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Keep the frame in `sent_audio`."""
        pcm = checked_audio(pcm, sample_rate_hz)
        self._check_open()
        self.sent_audio.append(AudioFrame(pcm=pcm, sample_rate_hz=sample_rate_hz, timestamp=monotonic()))

    def send_video(self, frame: VideoFrame) -> None:
        """Keep the image in `sent_video`."""
        self._check_open()
        self.sent_video.append(frame)

    def send_screen(self, frame: VideoFrame) -> None:
        """Keep the image in `sent_screen`."""
        self._check_open()
        self.sent_screen.append(frame)

    def _check_open(self) -> None:
        if not self._open:
            raise DisconnectedError("The memory transport is not connected; call connect() first", initiator="client")

    def receive(self, message: Inbound) -> None:
        """Deliver a message as if the bot had sent it. Any thread may call it; without a connection it is dropped."""
        # Shielded, so that Ctrl-C cannot interrupt the delivery, and a signal handler cannot enter it.
        shielded(lambda: self._deliver(message))

    def _deliver(self, message: Inbound) -> None:
        with self._lock:
            if not self._open:
                return
            self._arrived.append(message)
            if self._delivering:
                return  # one thread at a time delivers, in order, and this message is in its queue
            self._delivering = True
        while (arrived := self._next()) is not None:
            self.on_message(arrived)

    def _next(self) -> Inbound | None:
        with self._lock:
            self._delivering = bool(self._arrived) and self._open
            return self._arrived.popleft() if self._delivering else None

    def receive_audio(self, pcm: bytes | bytearray | memoryview, sample_rate_hz: int, num_channels: int = 1) -> None:
        """Play audio as if the bot had sent it. One thread at a time; without a connection it is dropped.

        Args:
            pcm: Signed 16-bit little endian.
            sample_rate_hz: Samples per second and channel.
            num_channels: Interleaved channels.
        """
        BYTES.check(pcm=pcm)
        RATE.check(sample_rate_hz=sample_rate_hz)
        COUNT.check(num_channels=num_channels)
        if self._open:
            shielded(lambda: self.options.media.receive_audio(pcm, sample_rate_hz, num_channels))

    def receive_video(self, frame: VideoFrame) -> None:
        """Show an image as if the bot had sent it. One thread at a time; without a connection it is dropped."""
        _FRAME.check(frame=frame)
        if self._open:
            shielded(lambda: self.options.media.receive_video(frame))

    def end(self, info: CloseInfo | None = None) -> None:
        """End the connection as if the bot had ended it."""
        _INFO.check(info=info)
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self.options.on_closed(info or CloseInfo(initiator="network"))
