"""What a transport is: the contract between the client and whatever carries its messages."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from ..concurrency.cancel import AbortSignal
from ..concurrency.hub import Hub
from ..errors import MessageTooLargeError, UnsupportedFeatureError
from ..events import RTVIEvent
from ..media import AudioSink, AudioSource, Tracks, VideoSource
from ..messages import RTVIMessage
from ..protocol import envelope
from ..protocol.states import CloseInfo, TransportState
from .net import Network

# What a transport may hand to `on_message`: JSON text, a parsed document, or a message.
Inbound: TypeAlias = str | bytes | Mapping[str, Any] | RTVIMessage


@attrs.frozen(kw_only=True)
class TransportOptions:
    """What one session gives to its transport. A transport forgets it when the next session initializes it.

    Attributes:
        client_ready: the message that `send_ready_message()` sends.
        on_interruption: call it when the wire says, other than by a message, that queued playback is void.
        on_closed: call it once when the connection has ended without `disconnect()`.
        on_event: call it for an event of the transport's own, such as a device's.
        mic, speaker, cam: None for the default device, a device id, or a source or sink of the caller's.
        enable_mic, enable_cam: whether they are on at the start.
        network: TLS and proxy.
        hub: the threads that sessions share. A transport of your own may ignore it.
        check_wanted: raises if the session was given up meanwhile: call it after something that may hang, before you
            change what the next session may be using.
    """

    client_ready: RTVIMessage
    on_interruption: Callable[[], None]
    on_closed: Callable[[CloseInfo], None]
    on_event: Callable[[RTVIEvent, Any], None]
    mic: str | AudioSource | None = None
    speaker: str | AudioSink | None = None
    cam: str | VideoSource | None = None
    enable_mic: bool = True
    enable_cam: bool = False
    network: Network = attrs.field(factory=Network)
    hub: Hub
    check_wanted: Callable[[], None] = lambda: None


@attrs.frozen(kw_only=True)
class TransportStats:
    """What a transport carried in a session, and what it lost. A transport that does not count leaves zeros.

    Attributes:
        bytes_sent, bytes_received: on the wire, frames and all, before TLS.
        bytes_waiting: not sent yet, because the server reads too slowly.
        audio_sent, audio_received: seconds of audio.
        audio_unsent: seconds of audio, the oldest each time, that were dropped because the server read too slowly.
        mic_underruns: chunks of 20 ms of silence that were sent because the source was late.
        speaker_dropped: frames of the bot's, the oldest each time, that were dropped because the sink was too slow.
        bot_frames_ignored: frames of the bot's with an impossible sample rate or number of channels.
        round_trip: seconds from the last keep-alive ping to its answer; None if there was none, since the line is not
            pinged while the bot sends.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_waiting: int = 0
    audio_sent: float = 0.0
    audio_received: float = 0.0
    audio_unsent: float = 0.0
    mic_underruns: int = 0
    speaker_dropped: int = 0
    bot_frames_ignored: int = 0
    round_trip: float | None = None


class Transport(abc.ABC):
    """Base of every transport. One object serves one session at a time, any number of them one after the other.

    A transport without media implements `connect()`, `disconnect()` and `send_message()` and calls, from one thread
    at a time:

    * ``self.on_message(message)`` for each message of the bot: JSON text, a parsed document, or an `RTVIMessage`. It
      never raises, never blocks and never runs user code;
    * ``self.options.on_closed(CloseInfo(...))`` when the connection ends by itself.
    """

    #: Name that `start_bot()` gives to the server as ``transport``.
    name = "custom"
    #: Largest serialized message, in bytes. 1 MiB is what Pipecat's standalone WebSocket server takes.
    max_message_size = 1_048_576
    #: Unix time at which the session will be ended by the server, if the transport knows.
    expiry: float | None = None
    #: Whether what `connect()` is given was answered by an https endpoint, and should not go on in plain text.
    secure_bundle = False
    #: Whether it can send a camera's picture.
    supports_video = False

    options: TransportOptions
    on_message: Callable[[Inbound], None]
    state: TransportState = TransportState.DISCONNECTED

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """A session begins. Called on the connect thread, before anything else of that session.

        Raises:
            RTVIError: the session was given up before this was reached.
        """
        options.check_wanted()  # one that was held up may come too late, when another session has begun
        self.options = options
        self.on_message = on_message

    def init_devices(self) -> None:  # noqa: B027 - a transport without devices has nothing to do
        """Find and open the devices. Called on the connect thread; may block.

        Raises:
            DeviceError: a device that was asked for by its id cannot be used.
        """

    @abc.abstractmethod
    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the connection; return when messages can be sent. Called on the connect thread; may block.

        Args:
            auth_bundle: what the connect endpoint or the caller of `connect()` gave, whole.
            abort: tells when the attempt is abandoned: `abort.attach(sock)` makes it wake a blocked socket,
                `abort.remaining()` is the time left.

        Raises:
            TransportStartError, InvalidTransportParamsError: it could not be opened.
        """

    @abc.abstractmethod
    def disconnect(self) -> None:
        """End the connection and free everything, within a second or two. Called on the close thread, also when
        `connect()` failed or has not returned yet, and when the connection ended by itself. `connect()` may be called
        again after it."""

    def send_ready_message(self) -> None:
        """Tell the bot that the client is ready. Called on the connect thread after `connect()`."""
        self.send_message(self.options.client_ready)

    @abc.abstractmethod
    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` without waiting for anything. Any thread may call it.

        Raises:
            MessageTooLargeError: it is larger than `max_message_size`.
            DisconnectedError: there is no connection.
        """

    def serialize(self, message: RTVIMessage) -> str:
        """The JSON text of `message`.

        Raises:
            MessageTooLargeError: it has more than `max_message_size` bytes.
        """
        text = envelope.encode(message)
        self.check_size(len(text.encode()), message)
        return text

    def check_size(self, size_bytes: int, message: RTVIMessage) -> None:
        """Raise `MessageTooLargeError` if a serialized frame of `size_bytes` is over the limit."""
        if size_bytes > self.max_message_size:
            raise MessageTooLargeError(
                f"The {message.type!r} message has {size_bytes} bytes; this transport carries {self.max_message_size}. "
                "Send less, or in parts."
            )

    def stats(self) -> TransportStats:
        """What was carried in the session that is, or in the last one. Any thread may call it."""
        return TransportStats()

    # -- media: what follows is for transports that carry it ----------------------------------------------------------

    def start_media(self) -> None:  # noqa: B027 - a transport without media has nothing to start
        """The bot is ready: sources may begin. Called on the thread that delivered bot-ready; must not block."""

    def interrupt_playback(self) -> None:  # noqa: B027
        """Drop what the bot said and was not played yet. On the thread that delivers messages; must not block."""

    def tracks(self) -> Tracks:
        """The tracks there are now."""
        return Tracks()

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone. Called on the caller's thread."""
        if enable:
            raise UnsupportedFeatureError(f"The {self.name} transport carries no audio", feature="mic")

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off. Called on the caller's thread."""
        if enable:
            raise UnsupportedFeatureError(
                f"The {self.name} transport carries no video; use a transport that does, or leave enable_cam off",
                feature="cam",
            )

    @property
    def is_mic_enabled(self) -> bool:
        """False: muted, or the transport carries no audio."""
        return False

    @property
    def is_cam_enabled(self) -> bool:
        """False: off, or the transport carries no video."""
        return False
