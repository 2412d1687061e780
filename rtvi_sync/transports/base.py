"""What a transport is: the contract between the client and whatever carries its messages.

docs/writing-a-transport.md leads from nothing to a transport that keeps it, `rtvi_sync.testing.transport_contract` has
its tests. Where it says "connect thread" and "close thread", these are threads of the session: the transport need not
start them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ..concurrency.cancel import AbortSignal
from ..concurrency.runtime import Runtime
from ..errors import MessageTooLargeError, UnsupportedFeatureError
from ..events import RTVIEvent
from ..media import AudioSink, AudioSource, MediaDeviceInfo, MediaPort, Tracks, VideoFrame, VideoSource
from ..media.manager import MediaManager
from ..messages import RTVIMessage
from ..protocol import envelope
from ..protocol.states import CloseInfo, TransportState
from .net import Network

# What a transport may hand to `on_message`: JSON text, a parsed document, or a message.
Inbound: TypeAlias = str | bytes | Mapping[str, Any] | RTVIMessage


@attrs.frozen(kw_only=True)
class TransportOptions:
    """What one session gives to its transport. A transport forgets it when the next session initializes it.

    The functions never block and never raise but for what is said; any thread may call them. What is called for a
    session that is over changes nothing.

    Attributes:
        client_ready: the message that `send_ready_message()` sends.
        on_interruption: call it when the wire says, other than by a message, that queued playback is void.
        on_closed: call it once when the connection has ended without `disconnect()`, and say how: `initiator` is
            "server" if the bot ended it, with the `code` and `reason` of the wire if it has such, "network" if it
            broke; `error` is for what went wrong. It may be called inside `connect()` and `send_message()` too.
            `disconnect()` follows, on another thread.
        on_event: call it with an event of the transport's own, such as a device's, and its data.
        on_messages: call it, instead of `Transport.on_message()` for each, with messages that came together, at most
            a hundred: each takes less time then. A transport may do without.
        media: the client's microphone, speaker and camera; see `Transport.supports_audio`.
        network: TLS and proxy, for transports that use them.
        check_wanted: raises if the session was given up meanwhile: call it after something that may hang, before you
            change what the next session may be using.
        time_to_close: how many seconds `disconnect()`, which has been called, may take to get through what was sent
            before. After 4 s, less at the exit of the interpreter, the session goes on without the transport.
    """

    client_ready: RTVIMessage
    on_interruption: Callable[[], None]
    on_closed: Callable[[CloseInfo], None]
    on_event: Callable[[RTVIEvent, Any], None]
    on_messages: Callable[[Sequence[Inbound]], None]
    media: MediaPort = attrs.field(factory=MediaManager)
    network: Network = attrs.field(factory=Network)
    check_wanted: Callable[[], None] = lambda: None
    time_to_close: Callable[[], float] = lambda: 3.0
    # The threads that sessions share: for the WebSocket transport, whose sockets the I/O thread serves.
    _runtime: Runtime | None = attrs.field(default=None, alias="_runtime", repr=False)


@attrs.frozen(kw_only=True)
class TransportStats:
    """What a transport carried in a session, and what it lost. A transport that does not count leaves zeros.

    Attributes:
        bytes_sent, bytes_received: on the wire, frames and all, before TLS.
        bytes_waiting: not sent yet, because the server reads too slowly.
        audio_sent, audio_received: seconds of audio.
        audio_unsent: seconds of audio, the oldest each time, that were dropped because the server read too slowly.
        round_trip: seconds from the last keep-alive ping to its answer; None if there was none, since the line is not
            pinged while the bot sends.
        text_frames_ignored: WebSocket text frames, which a bot with a JSON serializer sends, and no other bot.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_waiting: int = 0
    audio_sent: float = 0.0
    audio_received: float = 0.0
    audio_unsent: float = 0.0
    round_trip: float | None = None
    text_frames_ignored: int = 0


class Transport(abc.ABC):
    """Base of every transport. One object serves one session at a time, any number of them one after the other.

    A transport without media implements `connect()`, `disconnect()` and `send_message()` and calls, from one thread
    at a time:

    * ``self.on_message(message)`` for each message of the bot: JSON text, a parsed document, or an `RTVIMessage`. It
      never raises, never blocks and never runs user code, whatever it is given: what is no message of RTVI is logged
      and skipped. What has no end must be bounded before: it takes what it gets. It may send, on the same thread;
    * ``self.options.on_closed(CloseInfo(...))`` when the connection ends by itself.

    In a session the client calls `initialize()`, `init_devices()`, `connect()`, `send_ready_message()`, and, when the
    bot is ready, `start_media()`; in the end always `disconnect()`, unless `initialize()` was not reached. What any of
    the first five raises is raised to the caller of the client's `connect()`: an `RTVIError` as it is, another
    `Exception` as the cause of a `TransportStartError`. What `disconnect()` raises is logged.

    Threads that a transport starts should be daemons, so that they do not keep a program from exiting, and be gone
    when `disconnect()` returns. A forked child must not use the session of its parent, and is not asked to: it only
    has copies of the descriptors. End a connection by what reaches the other side though there are copies, such as
    `shutdown()`.
    """

    #: Name that `start_bot()` gives to the server as ``transport``.
    name = "custom"
    #: Largest serialized message, in bytes, that `serialize()` and `check_size()` let pass; a class or an object of it
    #: may have another. 1 MiB is what Pipecat's standalone WebSocket server takes.
    max_message_size = 1_048_576
    #: Unix time at which the session will be ended by the server; for the transport to set, if it knows.
    expiry: float | None = None
    #: Whether what `connect()` is given was answered by an https endpoint, and should not go on in plain text. Set by
    #: the session.
    secure_bundle = False
    #: Who gave what `connect()` is given, to begin an error with, as in "http://host/connect answered with"; "" if
    #: there is nothing. Set by the session.
    bundle_source = ""
    #: Whether it carries audio: then it has `send_audio()`, and gives what the bot says to
    #: ``self.options.media.receive_audio(pcm, sample_rate_hz, num_channels)``.
    supports_audio = False
    #: Whether it carries video: then it has `send_video()`, and gives what the bot shows, if anything, to
    #: ``self.options.media.receive_video(frame)``.
    supports_video = False

    #: Those of the session that is, or was last. A thread that may outlive its session keeps its own.
    options: TransportOptions
    on_message: Callable[[Inbound], None]
    #: The client's state; set by the session, never by the transport.
    state: TransportState = TransportState.DISCONNECTED

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """A session begins. Called on the connect thread, before anything else of that session. Whoever overrides it
        calls this one first, and must not block.

        Raises:
            RTVIError: the session was given up before this was reached.
        """
        options.check_wanted()  # one that was held up may come too late, when another session has begun
        self.options = options
        self.on_message = on_message

    def init_devices(self) -> None:
        """Find and open the devices. Called on the connect thread; may block.

        Raises:
            DeviceError: a device that was asked for by its id cannot be used.
        """
        self.options.media.prepare(audio=self.supports_audio, video=self.supports_video)

    @abc.abstractmethod
    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the connection; return when messages can be sent. Called on the connect thread; may block.

        When the attempt is abandoned, because its time is over or the program wants it no more, this has to return
        soon, by whatever exception, and to leave nothing open. `disconnect()` is called meanwhile, and a moment later
        another session may begin: so look at `abort` once more, under a lock that `disconnect()` takes too, before
        the connection is put where others find it. If it is put there first, `disconnect()` closes it.

        Messages that are delivered before this has returned are told to the program before the event `connected`; a
        transport may begin to read in `send_ready_message()` instead.

        Args:
            auth_bundle: what the connect endpoint or the caller of `connect()` gave, whole: any object, often a
                mapping; None if there is neither.
            abort: tells when the attempt is abandoned: `abort.attach(sock)` makes it wake a blocked socket,
                `abort.on_abort(function)` tells others, `abort.remaining()` is the time left in seconds, None without
                a limit.

        Raises:
            TransportStartError: it could not be opened.
            InvalidTransportParamsError: `auth_bundle` does not say where, or not as this transport needs it.
        """

    @abc.abstractmethod
    def disconnect(self) -> None:
        """End the connection and free everything. What was sent before should still get through.

        Called on the close thread, also when `connect()` failed or has not returned yet, and when the connection ended
        by itself; at the exit of the interpreter on any thread. It may be called at any time, again, and by several
        threads at once. It should take no more than a second or two, or `options.time_to_close()` while bytes leave:
        after four the session goes on without it. When it has returned nothing is delivered any more, `on_closed` is
        not called, and a new session may begin.

        Raises:
            DisconnectedError: messages that `send_message()` accepted could not be sent; the connection is closed all
                the same. The error is logged, and is the `CloseInfo.error` of a session that the application has ended.
        """

    def send_ready_message(self) -> None:
        """Tell the bot that the client is ready. Called on the connect thread after `connect()`, when the program was
        told `connected`. The bot's answer, `bot-ready`, is what the client's `connect()` waits for."""
        self.send_message(self.options.client_ready)

    @abc.abstractmethod
    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` without waiting for anything. Any thread may call it, several may at once.

        Messages of one thread keep their order. If the bot reads too slowly, keep so much as is reasonable, then end
        the connection. It may be called where a message is delivered, and, by a finalizer, in the midst of itself: a
        lock that it takes has to be re-entrant.

        Raises:
            MessageTooLargeError: it is larger than `max_message_size`; nothing is sent, and the connection lives.
            DisconnectedError: there is no connection, or it is lost now.
            TypeError, ValueError: its data is not JSON.
        """

    def serialize(self, message: RTVIMessage) -> str:
        """The JSON text of `message`, without line breaks.

        Raises:
            MessageTooLargeError: it has more than `max_message_size` bytes.
            TypeError, ValueError: its data is not JSON.
        """
        text = envelope.encode(message)
        self.check_size(len(text), message)
        return text.decode()

    def check_size(self, size_bytes: int, message: RTVIMessage) -> None:
        """For transports that put more around a message than `serialize()`: refuse a frame that is too large.

        Raises:
            MessageTooLargeError: `size_bytes` is more than `max_message_size`.
        """
        if size_bytes > self.max_message_size:
            raise MessageTooLargeError(
                f"The {message.type!r} message has {size_bytes} bytes; this transport carries {self.max_message_size}. "
                "Send less, or in parts."
            )

    def stats(self) -> TransportStats:
        """What was carried in the session that is, or in the last one. Any thread may call it."""
        return TransportStats()

    def diagnosis(self) -> str | None:
        """Say, in a sentence or two, what the transport has seen that explains why the bot is not ready; None: nothing.

        It takes the place of the general advice in the error of a `connect()` that timed out. Any thread may call it.
        """
        return None

    # -- media: for transports that carry it --------------------------------------------------------------------------

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next piece of what the user says: signed 16-bit little endian mono, usually 20 ms.

        Called while `supports_audio`, from `start_media()` on, on one thread at a time, which paces it; must not block.

        Raises:
            RTVIError: there is no connection any more.
        """
        raise NotImplementedError(f"{type(self).__name__} says supports_audio, but has no send_audio()")

    def send_video(self, frame: VideoFrame) -> None:
        """Send the camera's newest image. As `send_audio()`, while `supports_video`; it may block, and gets the newest
        image after it.
        """
        raise NotImplementedError(f"{type(self).__name__} says supports_video, but has no send_video()")

    def send_screen(self, frame: VideoFrame) -> None:
        """Send the newest image of the screen that the user shares. As `send_video()`, which it calls by default."""
        self.send_video(frame)

    def start_media(self) -> None:
        """The bot is ready: sources may begin. Called on the thread that delivered bot-ready; must not block."""
        self.options.media.start(
            self.send_audio if self.supports_audio else None,
            self.send_video if self.supports_video else None,
            self.send_screen if self.supports_video else None,
        )

    def interrupt_playback(self) -> None:
        """Drop what the bot said and was not played yet. On the thread that delivers messages; must not block."""
        self.options.media.interrupt()

    # What the program asks for in a session. Only a transport that has devices of its own overrides these.

    def tracks(self) -> Tracks:
        """The tracks there are now."""
        return self.options.media.tracks()

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone. Called on the caller's thread, in a session only; what is switched outside of
        one is known to the next one's media.

        Raises:
            UnsupportedFeatureError: this transport carries no audio.
        """
        if enable and not self.supports_audio:
            raise UnsupportedFeatureError(f"The {self.name} transport carries no audio", feature="mic")
        self.options.media.enable_mic(enable)

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off. As `enable_mic()`."""
        self._check_video(enable, "cam")
        self.options.media.enable_cam(enable)

    def enable_screen_share(self, enable: bool) -> None:
        """Begin or end to show the screen. As `enable_mic()`."""
        self._check_video(enable, "screen-share")
        self.options.media.enable_screen_share(enable)

    def update_mic(self, mic: str | MediaDeviceInfo | AudioSource | None) -> None:
        """Replace the microphone. As `enable_mic()`.

        Raises:
            DeviceError: it cannot be had; the old one goes on.
        """
        self.options.media.select("mic", mic)

    def update_speaker(self, speaker: str | MediaDeviceInfo | AudioSink | None) -> None:
        """Replace the speaker. As `update_mic()`."""
        self.options.media.select("speaker", speaker)

    def update_cam(self, cam: str | MediaDeviceInfo | VideoSource | None) -> None:
        """Replace the camera. As `update_mic()`."""
        self.options.media.select("cam", cam)

    def _check_video(self, enable: bool, feature: str) -> None:
        if enable and not self.supports_video:
            raise UnsupportedFeatureError(
                f"The {self.name} transport carries no video. Use one that does, or leave it off", feature=feature
            )
