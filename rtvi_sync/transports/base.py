"""The contract between the client and the transport that carries its messages.

docs/guides/transport.md is the guide to writing a transport, `rtvi_sync.testing.transport_contract` has the tests of
this contract. The "connect thread" and the "close thread" are threads of the session: the transport need not start
them.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ..concurrency.abort import AbortSignal
from ..concurrency.runtime import Runtime
from ..errors import MessageTooLargeError, UnsupportedFeatureError
from ..events import RTVIEvent
from ..media import MediaPort, Tracks, VideoFrame
from ..media.kinds import CamChoice, MicChoice, SpeakerChoice
from ..media.media import Media
from ..messages import RTVIMessage
from ..net.dial import Network
from ..protocol import envelope
from ..protocol.record import Record
from ..protocol.states import CloseInfo, TransportState

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

# The type of an inbound message that a transport passes to `on_message`: JSON text, a parsed document, or a message.
Inbound: TypeAlias = str | bytes | Mapping[str, Any] | RTVIMessage
Transcriber: TypeAlias = Callable[[bytes, int], str]
"""Returns the text spoken in PCM (signed 16-bit little endian, mono) of a sample rate in Hz."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TransportOptions(Record):
    """The callbacks and the resources that one session gives to its transport.

    The next session replaces them by its own in `Transport.initialize()`. The functions never block, and only raise
    where stated. Any thread may call them. After the end of the session a call has no effect.

    Attributes:
        client_ready: The message that `send_ready_message()` sends.
        on_interruption: Call it if the wire reports, other than by a message, that the bot was interrupted; drops the
            queued playback.
        on_closed: Call it once when the connection has ended without `disconnect()`. `CloseInfo.initiator` is
            "server" if the bot ended it, with the `code` and `reason` of the wire if there are any, and "network" if
            the connection broke; `error` is the cause. It may also be called inside `connect()` and `send_message()`.
            `disconnect()` follows, on another thread.
        on_event: Call it with an event of the transport itself, such as one of a device, and its data.
        on_messages: Optional: call it with up to 100 messages that arrived together, instead of calling
            `Transport.on_message()` for each; a message then takes less time.
        media: The client's microphone, speaker and camera; see `Transport.supports_audio`.
        text_only: True if the application has no microphone and no speaker: the bot need not send its voice.
        network: TLS and proxy, for transports that use them.
        http_client: The application's `httpx.Client`, or client of httpx2, for transports that make requests. None:
            the application passed none.
        check_wanted: Raises if the session was abandoned. Call it after a step that may hang, before a change to state
            that the next session may use.
        time_to_close: Returns the seconds that `disconnect()`, once called, may spend on sending the queued messages.
            After 4 s, less at the exit of the interpreter, the session ends without the transport.
    """

    client_ready: RTVIMessage
    on_interruption: Callable[[], None]
    on_closed: Callable[[CloseInfo], None]
    on_event: Callable[[RTVIEvent, Any], None]
    on_messages: Callable[[Sequence[Inbound]], None]
    media: MediaPort = attrs.field(factory=Media)
    text_only: bool = False
    network: Network = attrs.field(factory=Network)
    http_client: Any = attrs.field(default=None, repr=False)
    check_wanted: Callable[[], None] = lambda: None
    time_to_close: Callable[[], float] = lambda: 3.0
    # The threads that all sessions share. Private: only the WebSocket transport needs it, for its I/O thread.
    _runtime: Runtime | None = attrs.field(default=None, alias="_runtime", repr=False)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class StartRequest(Record):
    """The request that has started a bot.

    Attributes:
        url: the start endpoint, after redirects.
        headers: the headers of the request. They may hold a key: send them to the server at `url` only.
        cookies: the cookies that the answer has set. Send them only in requests of this attempt, to the host of `url`;
            see `auth_bundle.with_cookies()`.
        upload_url: the server's address for files for the bot, from the answer; None: the answer has none.
    """

    url: str = attrs.field(repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    cookies: CookieJar | None = attrs.field(default=None, repr=False)
    upload_url: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TransportStats(Record):
    """The counters of a transport in one session. A transport that does not count leaves zeros.

    Attributes:
        bytes_sent, bytes_received: Bytes on the wire, including the frame headers, without TLS.
        bytes_waiting: Bytes queued because the server reads too slowly.
        audio_sent, audio_received: Seconds of audio.
        audio_unsent: Seconds of audio that were dropped, the oldest first, because the server read too slowly; over
            WebRTC, and by telephone, because this process was too busy.
        audio_lost: Packets of the bot's audio that the network has lost (RTP).
        audio_concealed: Seconds of the bot's audio that were lost or late, and replaced by estimated audio.
        audio_jitter: Variation, in seconds, of the network's delay of the bot's audio (RTP); None: not known yet.
        round_trip: Seconds from the last keep-alive ping to its pong. None: no ping was sent, because the bot was
            sending. Over WebRTC, the round trip of RTCP; None until the bot has received audio.
        text_frames_ignored: WebSocket text frames that `WebSocketTransport` got; a bot with a JSON serializer sends
            them.
        binary_frames_ignored: WebSocket binary frames that `EvalTransport` or `TelephonyTransport` got; a bot with a
            protobuf serializer sends them.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_waiting: int = 0
    audio_sent: float = 0.0
    audio_received: float = 0.0
    audio_unsent: float = 0.0
    audio_lost: int = 0
    audio_concealed: float = 0.0
    audio_jitter: float | None = None
    round_trip: float | None = None
    text_frames_ignored: int = 0
    binary_frames_ignored: int = 0


class Transport(abc.ABC):
    """The base class of transports. One object serves one session at a time, and any number in sequence.

    A transport without media implements `connect()`, `disconnect()` and `send_message()` and calls, from one thread
    at a time:

    * ``self.on_message(message)`` for each message of the bot: JSON text, a parsed document, or an `RTVIMessage`. It
      never raises, never blocks and never runs application code, for any argument: data that is not an RTVI message is
      logged and skipped. It has no size limit of its own, so the transport must bound its reads. It may send, on
      the same thread;
    * ``self.options.on_closed(CloseInfo(...))`` when the connection ends without `disconnect()`.

    In a session the client calls `initialize()`, `init_devices()`, `connect()`, `send_ready_message()`, and, when the
    bot is ready, `start_media()`. At the end it always calls `disconnect()`, unless `initialize()` was not reached. An
    exception of the first five is raised to the caller of the client's `connect()`: an `RTVIError` unchanged, another
    `Exception` as the cause of a `TransportStartError`. An exception of `disconnect()` is logged.

    Threads that a transport starts should be daemons, so that they do not keep the process from exiting. They must have
    ended when `disconnect()` returns. A forked child has copies of the descriptors, but must not use its parent's
    session; no method is called there. End a connection by a call that reaches the peer in spite of such copies, such
    as `shutdown()`.
    """

    #: Name of the transport, in errors and logs.
    name = "custom"
    #: Name that `start_bot()` sends to the server as ``transport``; "": the `name`.
    start_name = ""
    #: Largest serialized message, in bytes, that `serialize()` and `check_size()` accept; a subclass or an instance may
    #: set another. The default, 1 MiB, is the limit of Pipecat's standalone WebSocket server.
    max_message_size = 1_048_576
    #: Unix time at which the server will end the session; set by the transport, if it is known.
    expiry: float | None = None
    #: True if the `auth_bundle` of `connect()` is from an https endpoint. Never use it for a connection in plain
    #: text. Set by the session.
    secure_bundle = False
    #: The source of the `auth_bundle` of `connect()`, as the start of an error text, as in
    #: `http://host/connect answered with`; "" if there is no bundle. Set by the session.
    bundle_source = ""
    #: The request whose answer is the `auth_bundle` of `connect()`; None if the application passed the bundle. Set by
    #: the session.
    start_request: StartRequest | None = None
    #: True if `disconnect()` always returns in time. Otherwise it has a thread of its own, which the end
    #: of the session abandons if it hangs. A subclass that overrides `disconnect()` must set this again.
    ends_in_time: bool = False
    #: True if the transport carries audio. It then implements `send_audio()`, and passes the bot's audio to
    #: ``self.options.media.receive_audio(pcm, sample_rate_hz, num_channels)``.
    supports_audio = False
    #: True if the bot's audio, silence included, arrives in real time and without end, as over RTP. The client then
    #: drops silence after 0.3 s. When a speaking bot is interrupted, it drops up to 0.2 s of later speech, which was on
    #: its way. A speaker keeps its delay, however the clocks and the network behave.
    audio_is_continuous = False
    #: True if the transport carries video. It then implements `send_video()`, and passes the bot's images, if there are
    #: any, to ``self.options.media.receive_video(frame)``.
    supports_video = False
    #: False if no RTVI messages pass to or from the bot, as by telephone. The transport then passes to `on_message()`
    #: the messages that it derives from the audio: `bot-ready`, and when the user and the bot start and stop speaking.
    #: `send_message()` is not called: methods that would send a message raise `UnsupportedFeatureError`. Turns have
    #: audio only.
    carries_messages = True
    #: If `carries_messages` is False and turns are used: called on a worker thread with the bot's audio of each turn
    #: that has ended, and its rate. It returns the words, which become the turn's `bot_text`; until then the turn is in
    #: progress. If it raises, or returns no str, the failure is logged, and the text is None. The end of the session
    #: waits up to 3 s for it. None: the words are unknown.
    transcribe: Transcriber | None = None

    #: The options and the callback of the current session, or of the last one. A thread that may outlive its session
    #: keeps references of its own.
    options: TransportOptions
    on_message: Callable[[Inbound], None]
    #: The client's state; set by the session, never by the transport.
    state: TransportState = TransportState.DISCONNECTED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        names = next(names for each in cls.__mro__ if (names := vars(each).keys() & {"disconnect", "ends_in_time"}))
        if "ends_in_time" not in names:
            cls.ends_in_time = False  # it was set for the inherited `disconnect()`

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """Start a session. Called on the connect thread, before any other call of that session.

        An override calls this method first, and must not block.

        Raises:
            RTVIError: The session was abandoned before this call.
        """
        options.check_wanted()  # a delayed call may arrive when the next session has started
        self.options = options
        self.on_message = on_message

    def init_devices(self) -> None:
        """Find and open the devices. Called on the connect thread; may block.

        Raises:
            DeviceError: A device that was requested by its id cannot be used.
        """
        self.options.media.prepare(
            audio=self.supports_audio, video=self.supports_video, is_continuous=self.audio_is_continuous
        )

    @abc.abstractmethod
    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Open the connection; return when messages can be sent. Called on the connect thread; may block.

        If the attempt is abandoned, because its limit has passed or the application has called `disconnect()`, this
        method must return soon, with any exception, and leave nothing open. The client calls `disconnect()` at once,
        and the next session may start right after it. So check `abort` again, under a lock that `disconnect()` takes
        too, before the connection is stored. If it was stored before the abort, `disconnect()` closes it.

        Messages that are delivered before this method has returned reach the application before the event `connected`.
        A transport may start reading in `send_ready_message()` instead.

        Args:
            auth_bundle: The complete answer of the connect endpoint, or the object that `connect()` was given: any
                object, often a mapping; None if there is neither.
            abort: Signals that the attempt is abandoned: `abort.attach(sock)` makes it wake a blocked socket,
                `abort.on_abort(function)` calls a function, `abort.remaining()` is the time left in seconds, None
                without a limit.

        Raises:
            TransportStartError: The connection could not be opened.
            InvalidTransportParamsError: `auth_bundle` has no address, or not in the form that this transport needs.
        """

    @abc.abstractmethod
    def disconnect(self) -> None:
        """End the connection and free its resources. Messages that were sent before should still reach the bot.

        Called on the close thread, or on any thread at the exit of the interpreter. Also called if `connect()` failed
        or has not returned yet, and if the connection has already ended. It is idempotent, and may be called at any
        time, by several threads at once. It should take 1 s to 2 s at most, or up to `options.time_to_close()` while
        bytes are still being sent: after 4 s the session ends without it. After it has returned, no message is
        delivered, `on_closed` is not called, and a new session may start.

        Raises:
            DisconnectedError: Messages that `send_message()` accepted could not be sent; the connection is still
                closed. The error is logged, and is the `CloseInfo.error` of a session that the application has ended.
        """

    def send_ready_message(self) -> None:
        """Send `client-ready` to the bot. Called on the connect thread after `connect()` and the event `connected`.

        The client's `connect()` waits for the bot's answer, `bot-ready`. If `carries_messages` is False, nothing is
        sent.
        """
        if self.carries_messages:
            self.send_message(self.options.client_ready)

    @abc.abstractmethod
    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` without blocking. Any thread may call it, several at once.

        Messages of one thread keep their order. If the bot reads too slowly, buffer a bounded amount, then end the
        connection. It may be called where a message is delivered, and re-entrantly by a finalizer: a lock that it takes
        must be re-entrant.

        Raises:
            MessageTooLargeError: The message is larger than `max_message_size`; nothing is sent, and the connection
                stays open.
            DisconnectedError: There is no connection, or it was lost.
            TypeError, ValueError: The message's data is not JSON.
        """

    def serialize(self, message: RTVIMessage) -> str:
        """Return the JSON text of `message`, without line breaks.

        Raises:
            MessageTooLargeError: The text has more than `max_message_size` bytes.
            TypeError, ValueError: The message's data is not JSON.
        """
        text = envelope.encode(message)
        self.check_size(len(text), message)
        return text.decode()

    def check_size(self, size_bytes: int, message: RTVIMessage) -> None:
        """Refuse a frame that is too large; for transports whose frames are larger than the JSON text in them.

        Raises:
            MessageTooLargeError: `size_bytes` is more than `max_message_size`.
        """
        if size_bytes > self.max_message_size:
            raise MessageTooLargeError(
                f"The {message.type!r} message has {size_bytes} bytes; this transport carries {self.max_message_size}. "
                "Send less, or send it in parts."
            )

    def stats(self) -> TransportStats:
        """Return the counters of the current session, or of the last one. Any thread may call it."""
        return TransportStats()

    def diagnosis(self) -> str | None:
        """Return the transport's explanation why the bot is not ready, in a sentence or two; None without one.

        The text replaces the general advice in the error of a `connect()` that timed out. Any thread may call it.
        """
        return None

    def credentials(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL of the bot, "" if it is not known, and the headers of the request to it. Any thread.

        A recording shows the URL without its secrets, and removes the secrets of both from everything else.
        """
        return "", {}

    def waiting_for(self) -> str:
        """Return the step that `connect()` waits for now, as the object of "waiting for"; "" for no particular step.

        The text becomes part of the error of a `connect()` that timed out. Any thread may call it.
        """
        return ""

    # -- media: for transports that carry it --------------------------------------------------------------------------

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio: signed 16-bit little endian mono, usually 20 ms.

        Called if `supports_audio`, from `start_media()` on, on one thread at a time, which times the calls; must not
        block.

        Raises:
            RTVIError: There is no connection any more.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has supports_audio = True and no send_audio(). Implement send_audio()"
        )

    def send_dtmf(self, keys: str) -> None:  # noqa: ARG002 - for a transport with keys
        """Press keys of a telephone. Called if not `carries_messages`, on any thread; may block until they are sent.

        Raises:
            UnsupportedFeatureError: This transport has no keys.
            DisconnectedError: There is no connection any more.
        """
        raise UnsupportedFeatureError(
            f"The {self.name} transport has no keys to press. Call the bot by telephone, with transport='twilio'",
            feature="dtmf",
        )

    def send_video(self, frame: VideoFrame) -> None:
        """Send the camera's newest image.

        Called as `send_audio()`, if `supports_video`. It may block; the next call then has the newest image.

        Raises:
            RTVIError: There is no connection any more.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has supports_video = True and no send_video(). Implement send_video()"
        )

    def send_screen(self, frame: VideoFrame) -> None:
        """Send the newest image of the shared screen. Calls `send_video()` by default, and is called like it."""
        self.send_video(frame)

    def start_media(self) -> None:
        """Start the sources: the bot is ready. Called on the thread that delivered bot-ready; must not block."""
        self.options.media.start(
            self.send_audio if self.supports_audio else None,
            self.send_video if self.supports_video else None,
            self.send_screen if self.supports_video else None,
        )

    def interrupt_playback(self) -> None:
        """Drop the bot's queued audio. Called on the thread that delivers messages; must not block."""
        self.options.media.interrupt()

    # -- device control: only a transport with devices of its own overrides these -------------------------------------

    def tracks(self) -> Tracks:
        """Return the tracks that exist now."""
        return self.options.media.tracks()

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone.

        Called on the application's thread, during a session only: the media of the next session already has a setting
        that was changed between two sessions.

        Raises:
            UnsupportedFeatureError: This transport carries no audio.
        """
        if enable and not self.supports_audio:
            raise UnsupportedFeatureError(
                f"The {self.name} transport carries no audio. Use one that does, or leave it off", feature="mic"
            )
        self.options.media.enable_mic(enable)

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off. Called and raises as `enable_mic()`."""
        self._check_video(enable, "cam")
        self.options.media.enable_cam(enable)

    def enable_screen_share(self, enable: bool) -> None:
        """Start or stop to share the screen. Called and raises as `enable_mic()`."""
        self._check_video(enable, "screen-share")
        self.options.media.enable_screen_share(enable)

    def update_mic(self, mic: MicChoice) -> None:
        """Replace the microphone. Called as `enable_mic()`.

        Raises:
            DeviceError: The new one cannot be opened; the old one stays.
        """
        self.options.media.select("mic", mic)

    def update_speaker(self, speaker: SpeakerChoice) -> None:
        """Replace the speaker. Called and raises as `update_mic()`."""
        self.options.media.select("speaker", speaker)

    def update_cam(self, cam: CamChoice) -> None:
        """Replace the camera. Called and raises as `update_mic()`."""
        self.options.media.select("cam", cam)

    def _check_video(self, enable: bool, feature: str) -> None:
        if enable and not self.supports_video:
            raise UnsupportedFeatureError(
                f"The {self.name} transport carries no video. Use one that does, or leave it off", feature=feature
            )
