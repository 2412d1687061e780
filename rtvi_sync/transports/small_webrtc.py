"""The WebRTC transport: RTVI over a data channel, and audio and video over RTP, as Pipecat's SmallWebRTC has them."""

from __future__ import annotations

import importlib.util
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from ..concurrency.abort import AbortController, AbortSignal
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.future import Future
from ..concurrency.lifecycle import NoThreadError, register_for_fork
from ..concurrency.lock import new_lock
from ..concurrency.logs import package_logger
from ..concurrency.pool_task import PoolTask
from ..errors import DisconnectedError, MessageTooLargeError, MissingExtraError, RTVIError, TransportStartError
from ..media import MediaPort, VideoFrame
from ..media.pcm import checked_audio
from ..messages import RTVIMessage
from ..net.urls import printable
from ..protocol.states import CloseInfo
from ..protocol.validation import BOOL, COUNT, HEADERS, SECONDS, URL, list_of
from .auth_bundle import with_cookies
from .base import Inbound, Transport, TransportOptions, TransportStats
from .webrtc import advice, signalling
from .webrtc.peer import AUDIO_BITRATE, PICTURE_SIZE, VIDEO_BITRATE, MediaLimits, PictureLimits
from .webrtc.signalling import OfferAnswer, Target

if TYPE_CHECKING:
    from .webrtc.connection import WebRTCConnection

logger: logging.Logger = package_logger(__name__)

T = TypeVar("T")

_ORIGINS = list_of(URL, "a list of origins, such as ['https://bots.example']")

# Seconds for another negotiation of a connection, which carries media and messages during this time.
_RENEGOTIATION_TIMEOUT = 10.0
# The owner of an attempt abandons it at its limit; a wait ends by itself this much later, in seconds.
_GRACE = 1.0
# The microphone counts as off this many seconds after its last audio. Pipecat 0.0.73 drops all audio from then on.
_AUDIO_PAUSE = 0.5


class SmallWebRTCTransport(Transport):
    """A connection to a bot with Pipecat's SmallWebRTCTransport. Carries audio and video both ways, and the screen.

    Nearly all of Pipecat's examples are such bots, and its runner starts them (``POST /start``). It needs the extra
    "webrtc".

    Args:
        webrtc_url: The URL that takes the offer, such as ``http://host:7860/api/offer``. It takes precedence over the
            start endpoint's answer. None: the server that started the bot.
        headers: Headers of the offer. If the start endpoint answered with a sessionId only, the headers of the start
            request are sent too.
        ice_servers: STUN and TURN servers in the form of browsers: URLs, or mappings with ``urls``, ``username`` and
            ``credential``. The first TURN URL that answers is used, and the first STUN server. None: the servers that
            the start endpoint named, if any.
        ice_timeout (seconds): Limit of the time from the bot's answer until the connection is open. None: no limit.
        allow_insecure: True to send the offer to an ``http://`` URL from a start endpoint that was reached over
            ``https://``.
        allowed_origins: Servers such as ``https://bots.example`` to which a start endpoint may send the offer. Without
            them the offer is sent only to the start endpoint's own server.
        max_message_size (bytes): Largest serialized message that is sent. A bot may accept less.
        audio_bitrate: Bit rate of the user's voice, in bits per second. None: 48,000 up to 16 kHz, and 64,000 above.
        cam_bitrate, screen_bitrate: Highest bit rates of the pictures, in bits per second. None: 1,500,000.
        cam_size, screen_size: Width and height in pixels; larger pictures are scaled to fit, in their shape. None: any.

    Raises:
        InvalidTransportParamsError: `webrtc_url` is not the URL of a server, or `allowed_origins` has an invalid one.
        MissingExtraError: aiortc is not installed.
    """

    name = "webrtc"
    supports_audio = True
    audio_is_continuous = True
    supports_video = True
    # A default, so that the repr works in a traceback of the constructor that shows locals.
    _webrtc_url: str | None = None

    def __init__(
        self,
        webrtc_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        ice_servers: Sequence[str | Mapping[str, Any]] | None = None,
        ice_timeout: float | None = 10.0,
        allow_insecure: bool = False,
        allowed_origins: Sequence[str] = (),
        max_message_size: int = 262_144,
        audio_bitrate: int | None = None,
        cam_bitrate: int | None = None,
        cam_size: tuple[int, int] | None = None,
        screen_bitrate: int | None = None,
        screen_size: tuple[int, int] | None = None,
    ) -> None:
        URL.or_none.check(webrtc_url=webrtc_url)
        HEADERS.or_none.check(headers=headers)
        SECONDS.or_none.check(ice_timeout=ice_timeout)
        BOOL.check(allow_insecure=allow_insecure)
        _ORIGINS.check(allowed_origins=allowed_origins)
        COUNT.check(max_message_size=max_message_size)
        AUDIO_BITRATE.or_none.check(audio_bitrate=audio_bitrate)
        VIDEO_BITRATE.or_none.check(cam_bitrate=cam_bitrate, screen_bitrate=screen_bitrate)
        PICTURE_SIZE.or_none.check(cam_size=cam_size, screen_size=screen_size)
        if webrtc_url is not None:
            signalling.check_offer_url(webrtc_url)
        self._ice_servers = None if ice_servers is None else signalling.ice_servers(ice_servers)
        if not is_installed():
            raise MissingExtraError("SmallWebRTCTransport", "webrtc")
        self._webrtc_url = webrtc_url
        self._headers = dict(headers or {})
        self._ice_timeout = ice_timeout
        self._allow_insecure = allow_insecure
        self._allowed_origins = signalling.checked_origins(allowed_origins)
        self.max_message_size = max_message_size
        self._limits = MediaLimits(
            audio_bitrate=audio_bitrate,
            cam=PictureLimits(bitrate=cam_bitrate, size=cam_size),
            screen=PictureLimits(bitrate=screen_bitrate, size=screen_size),
        )
        self._reached: tuple[str, Mapping[str, str]] = webrtc_url or "", self._headers
        self._step: Callable[[], str] = str
        self._advice: Callable[[], str | None] = _no_advice
        self._bot_takes = max_message_size
        self._audio_sent = self._audio_received = 0.0
        self._audio_sent_at = -math.inf  # monotonic time
        # Guards the four fields below, because an abandoned attempt must not store its connection later. Any thread may
        # hold it, for a few assignments. Re-entrant, because a finalizer may run in between.
        self._lock = new_lock()
        self._connection: WebRTCConnection | None = None
        self._last: WebRTCConnection | None = None  # for the counters of a session that has ended
        self._abort: AbortSignal | None = None
        self._renegotiation: tuple[PoolTask, AbortController] | None = None
        register_for_fork(self)

    def __repr__(self) -> str:
        url = printable(self._webrtc_url) if self._webrtc_url is not None else None
        return f"{type(self).__name__}(webrtc_url={url!r})"

    # -- session ------------------------------------------------------------------------------------------------------

    def initialize(self, options: TransportOptions, on_message: Callable[[Inbound], None]) -> None:
        """Start a session with new counters."""
        super().initialize(options, on_message)
        self._last, self._step, self._advice = None, str, _no_advice
        self._audio_sent = self._audio_received = 0.0
        self._audio_sent_at = -math.inf

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        """Negotiate the connection, and wait for its data channel. Reading starts in `send_ready_message()`."""
        target = self._target(auth_bundle)
        self._reached = target.url, target.headers
        abort.raise_if_aborted()
        connection = self._make_connection(target, abort)
        with self._lock:
            abandoned = abort.aborted
            if not abandoned:
                self._connection = self._last = connection
                self._abort = abort
        try:
            abort.raise_if_aborted()
            self._open(connection, target, abort)
        except BaseException:
            connection.close(0.0)
            self._begin_step(abort, str)
            raise
        self._begin_step(abort, str, advice.for_silent_bot)

    def _begin_step(
        self, abort: AbortSignal, step: Callable[[], str], advice: Callable[[], str | None] | None = None
    ) -> None:
        """Set the step that the attempt waits for, unless it was abandoned and the transport may serve another one."""
        with self._lock:
            if not abort.aborted:
                self._step, self._advice = step, advice or _no_advice

    def _make_connection(self, target: Target, abort: AbortSignal) -> WebRTCConnection:
        self._begin_step(abort, lambda: "the import of aiortc")
        from ..concurrency.loop_thread import acquire_loop  # imported late, because asyncio and aiortc take a second
        from .webrtc.aiortc_peer import AiortcPeer
        from .webrtc.connection import WebRTCConnection

        loop, options = acquire_loop(), self.options

        def closed(info: CloseInfo) -> None:
            if self._connection is connection:  # otherwise disconnect() was called
                options.on_closed(info)

        try:
            connection = WebRTCConnection(
                loop,
                partial(AiortcPeer, loop, target.ice_servers, self._limits),
                on_message=self.on_message,
                on_audio=partial(self._receive_audio, options.media),
                on_video=options.media.receive_video,
                wants_video=lambda: options.media.wants_video,
                tracks_on=self._tracks_on,
                on_closed=closed,
                on_renegotiate=lambda: self._begin_renegotiation(connection, target),
            )
        except BaseException:
            loop.release()
            raise
        return connection

    def _open(self, connection: WebRTCConnection, target: Target, abort: AbortSignal) -> None:
        self._begin_step(
            abort,
            lambda: "the addresses of this machine, and for its STUN and TURN servers",
            lambda: advice.for_gathering(target.ice_servers),
        )
        offer = _result(connection.peer.offer(), abort)
        if not signalling.candidates(offer):
            raise TransportStartError(advice.for_no_address())
        self._begin_step(abort, lambda: f"an answer of {printable(target.url)} to the offer")
        answer = self._exchange(offer, connection, target, abort)
        self._begin_step(
            abort,
            lambda: connection.peer.step,
            lambda: advice.for_step(connection.peer.step, offer, answer.sdp, target.ice_servers),
        )
        opened = connection.peer.accept(answer.sdp, short_packets=answer.takes_short_packets)
        abort.on_abort(lambda: opened.reject(abort.reason or DisconnectedError("abandoned")))
        if not opened.wait(Deadline(self._ice_timeout)):
            raise TransportStartError(
                f"The WebRTC connection was not open within {self._ice_timeout:g} s (ice_timeout). {self._advice()}"
            )
        try:
            opened.result()
        except ConnectionError as error:
            raise TransportStartError(f"The WebRTC connection was not established: {error}. {self._advice()}") from None
        self._bot_takes = answer.max_message_size
        connection.opened()

    def _exchange(self, offer: str, connection: WebRTCConnection, target: Target, signal: AbortSignal) -> OfferAnswer:
        """Send an offer, and return the answer."""
        from ..net.advice import OFFER
        from ..net.http import post_json

        answered = post_json(
            target.url,
            signalling.offer_body(offer, connection.pc_id, target.request_data),
            headers=target.headers,
            network=self.options.network,
            signal=signal,
            client=self.options.http_client,
            purpose=OFFER,
        )
        answer = signalling.answer_of(answered.document, printable(target.url))
        connection.pc_id = answer.pc_id
        return answer

    def _target(self, bundle: Any) -> Target:
        target = signalling.target_of(
            bundle, self._webrtc_url, self._headers, self.start_request, self.bundle_source, self._allowed_origins
        )
        if self.secure_bundle and not self._allow_insecure:
            signalling.check_encrypted(target.url)
        start = self.start_request
        # A client of the application's own sends the cookies that it has.
        if start is not None and self.options.http_client is None:
            headers = with_cookies(target.headers, signalling.check_offer_url(target.url), start)
            target = attrs.evolve(target, headers=headers)
        return target if self._ice_servers is None else attrs.evolve(target, ice_servers=self._ice_servers)

    def credentials(self) -> tuple[str, Mapping[str, str]]:
        """Return the address that takes the offer, and the headers of that request."""
        return self._reached

    def waiting_for(self) -> str:
        """Return the step of the negotiation."""
        return self._step()

    def diagnosis(self) -> str | None:
        """Return the advice about the current step of the negotiation, which takes long."""
        return self._advice()

    def send_ready_message(self) -> None:
        """Start reading, and send `client-ready`. Earlier messages would be delivered before the event `connected`."""
        connection = self._connection
        if connection is not None:
            connection.start()
        super().send_ready_message()

    def disconnect(self) -> None:
        """Close the data channel after the queued messages, and end the connection.

        Raises:
            DisconnectedError: Messages had not been sent.
        """
        with self._lock:
            connection, self._connection = self._connection, None
            abort, self._abort = self._abort, None
            renegotiation, self._renegotiation = self._renegotiation, None
            self._step, self._advice = str, _no_advice
        if renegotiation is not None:
            task, controller = renegotiation
            controller.abort()
            task.done.wait(Deadline(1.0))
        if connection is None:
            return
        abandoned = abort is not None and abort.aborted
        unsent = connection.close(0.0 if abandoned else self.options.time_to_close())
        if unsent and not abandoned:
            raise DisconnectedError(
                f"Messages were lost ({unsent} bytes): they had not been sent when the session ended. Wait for the "
                "bot's answer before you disconnect, or send less over a slow line",
                initiator=connection.info.initiator if connection.info is not None else "client",
            )

    def after_fork_in_child(self) -> None:
        """Forget the parent's connection, and replace the lock, whose holder does not exist in the child."""
        self._lock = new_lock()
        self._connection = self._last = self._abort = self._renegotiation = None

    # -- another negotiation: when the bot asks for it ----------------------------------------------------------------

    def _begin_renegotiation(self, connection: WebRTCConnection, target: Target) -> None:
        """Renegotiate, on a thread of its own. Called on the loop's thread."""
        controller = AbortController(
            Deadline(_RENEGOTIATION_TIMEOUT), lambda: DisconnectedError("The session has ended", initiator="client")
        )
        task = PoolTask("connect", self._renegotiate, connection, target, controller.signal)
        with self._lock:
            if self._connection is not connection or (self._renegotiation and not self._renegotiation[0].done.is_set()):
                return
            self._renegotiation = task, controller
        try:
            task.start()
        except NoThreadError as error:
            self._renegotiation = None
            logger.warning("The bot asked to renegotiate the connection, which failed: %s", error)

    def _renegotiate(self, connection: WebRTCConnection, target: Target, signal: AbortSignal) -> None:
        try:
            answer = self._exchange(_result(connection.peer.offer(), signal), connection, target, signal)
            _result(connection.peer.accept(answer.sdp), signal)
        except RTVIError as error:
            if not signal.aborted:
                logger.warning("The bot asked to renegotiate the connection, which failed: %s", error)

    # -- messages and media -------------------------------------------------------------------------------------------

    def send_message(self, message: RTVIMessage) -> None:
        """Send `message` over the data channel."""
        text = self.serialize(message)
        self._opened().send(text)

    def check_size(self, size_bytes: int, message: RTVIMessage) -> None:
        """Refuse a message that is too large for this transport, or for the bot."""
        super().check_size(size_bytes, message)
        if size_bytes > self._bot_takes:
            raise MessageTooLargeError(
                f"The {message.type!r} message has {size_bytes} bytes; this bot takes {self._bot_takes} over "
                "WebRTC. Send less, or send it in parts."
            )

    def _opened(self) -> WebRTCConnection:
        connection = self._connection
        if connection is None:
            if (last := self._last) is not None and last.info is not None:
                raise last.info.as_error()
            raise DisconnectedError("The WebRTC connection is not open; call connect() first", initiator="client")
        return connection

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the user's audio."""
        pcm = checked_audio(pcm, sample_rate_hz)
        connection = self._opened()
        connection.check_open()
        was_silent, self._audio_sent_at = not self._sends_audio, monotonic()
        if was_silent:
            connection.tell_tracks()
        connection.peer.send_audio(pcm, sample_rate_hz)
        self._audio_sent += len(pcm) / (2 * sample_rate_hz)

    def send_video(self, frame: VideoFrame) -> None:
        """Send the camera's newest image. Returns when it is compressed, so that the next image is the newest again."""
        self._send_picture(frame, is_screen=False)

    def send_screen(self, frame: VideoFrame) -> None:
        """Send the newest image of the screen, as `send_video()`."""
        self._send_picture(frame, is_screen=True)

    def _send_picture(self, frame: VideoFrame, *, is_screen: bool) -> None:
        connection = self._opened()
        connection.peer.send_video(frame, is_screen=is_screen).wait(Deadline(None))
        connection.check_open()

    def _receive_audio(self, media: MediaPort, pcm: bytes, sample_rate_hz: int, num_channels: int) -> None:
        self._audio_received += len(pcm) / (2 * sample_rate_hz)
        media.receive_audio(pcm, sample_rate_hz, num_channels)

    def _tracks_on(self) -> tuple[bool, ...]:
        local = self.options.media.tracks().local
        tracks = local.audio, local.video, local.screen_video
        mic, *pictures = (track is not None and track.enabled for track in tracks)
        return mic or self._sends_audio, *pictures

    @property
    def _sends_audio(self) -> bool:
        """True if audio goes out: from the microphone or its replacement, or the silence after a mute."""
        return monotonic() - self._audio_sent_at < _AUDIO_PAUSE

    def enable_mic(self, enable: bool) -> None:
        """Unmute or mute the microphone, and tell the bot. A mute is reported after the last audio was sent."""
        super().enable_mic(enable)
        self._tell_tracks()

    def enable_cam(self, enable: bool) -> None:
        """Turn the camera on or off, and tell the bot."""
        super().enable_cam(enable)
        self._tell_tracks()

    def enable_screen_share(self, enable: bool) -> None:
        """Start or stop sharing the screen, and tell the bot."""
        super().enable_screen_share(enable)
        self._tell_tracks()

    def _tell_tracks(self) -> None:
        if (connection := self._connection) is not None:
            connection.tell_tracks()

    def stats(self) -> TransportStats:
        """Return the counters of the current session, or of the last one."""
        own = TransportStats(audio_sent=self._audio_sent, audio_received=self._audio_received)
        if (connection := self._last) is None:
            return own
        measured = connection.stats
        return attrs.evolve(
            own,
            bytes_sent=measured.bytes_sent,
            bytes_received=measured.bytes_received,
            bytes_waiting=connection.peer.bytes_waiting if self._connection is connection else 0,
            audio_unsent=measured.audio_unsent,
            audio_lost=measured.audio_lost,
            audio_concealed=measured.audio_concealed,
            audio_jitter=measured.jitter,
            round_trip=measured.round_trip,
        )


def _no_advice() -> None:
    """Return None: the general advice of the session applies."""


def is_installed() -> bool:
    """Return whether the extra "webrtc" is installed, without importing it."""
    return importlib.util.find_spec("aiortc") is not None


def _result(future: Future[T], abort: AbortSignal) -> T:
    """Wait for a result of the loop, until the attempt is abandoned.

    Raises:
        TransportStartError: the loop does not answer.
        BaseException: the signal's reason, if the attempt was abandoned.
    """
    abort.on_abort(lambda: future.reject(abort.reason or DisconnectedError("The attempt was abandoned")))
    remaining = abort.remaining()
    came = future.wait(Deadline(None if remaining is None else remaining + _GRACE))
    abort.raise_if_aborted()
    if not came:
        raise TransportStartError("The WebRTC library does not answer; raise connect_timeout if the machine is busy")
    return future.result()
