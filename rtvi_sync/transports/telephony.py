"""The telephony transport: it calls a bot as the telephone network does, by a provider's media stream."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, get_args
from urllib.parse import SplitResult, quote, urlencode

import attrs

from ..concurrency.clock import monotonic, wall_time
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.logs import package_logger
from ..concurrency.timer_thread import ScheduledTask
from ..errors import DisconnectedError, ProtocolError, UnsupportedFeatureError
from ..media.pcm import checked_audio
from ..messages import RTVIMessage
from ..protocol.heard import Heard
from ..protocol.states import CloseInfo, TransportState, is_loss
from ..protocol.telephony import (
    KEYS,
    PROVIDERS,
    RATE_HZ,
    CallWriter,
    Codec,
    PhoneCall,
    Provider,
    ProviderName,
)
from ..protocol.validation import NAME, SECONDS, STRING, STRINGS, Rule, function_taking, integer, number, one_of
from .base import TransportOptions, TransportStats
from .phone_line import MAX_WAITING, STEP, Impairments, PhoneLine
from .websocket_base import WebSocketBase, WebSocketReceiver
from .websocket_frames import TEXT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .websocket_base import WebSocketOptions

logger: logging.Logger = package_logger(__name__)

# After this process was stopped, at most this many seconds of missed steps are made.
_MOST_BEHIND = 1.0
# Seconds for which the bot's last words are played after it has hung up.
_LAST_WORDS = 10.0

# The environment variables without which the serializer of a Pipecat bot refuses a call; any text will do.
_CREDENTIALS = {
    "twilio": ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN"),
    "telnyx": ("TELNYX_API_KEY",),
    "plivo": ("PLIVO_AUTH_ID", "PLIVO_AUTH_TOKEN"),
    "exotel": (),
}
# Seconds to wait for the I/O thread, which never blocks, before the call ends without `stop`.
_STOP_TIMEOUT = 0.5

_NO_CALL = "There is no call; call connect() first"
_PROVIDER = one_of(*PROVIDERS)
_TRANSCRIBE = function_taking("pcm", "sample_rate_hz").or_none
_SHARE = number(0, 1)
_JITTER = number(0, 10)
_SEED = integer(0).or_none
_KEY_TEXT = Rule(
    "keys of a telephone, such as '12#' (0 to 9, * and #)",
    lambda keys: isinstance(keys, str),
    lambda keys: keys != "" and KEYS.issuperset(keys),
)


class PhoneReceiver(WebSocketReceiver):
    """The decoder of a bot's messages to a provider."""

    opcode: ClassVar[int] = TEXT
    advice: ClassVar[str] = "A telephone provider is sent JSON text. See which serializer the bot's transport has"

    audio: float  # again, because pyright does not infer it where only `+=` stands

    def __init__(self, options: TransportOptions, provider: Provider, line: PhoneLine) -> None:
        super().__init__(options)
        self._provider = provider
        self._line = line

    def receive(self, payloads: Sequence[bytes]) -> None:
        """Take consecutive text messages. Messages that no provider has, such as RTVI's, are skipped."""
        for payload in payloads:
            try:
                message = self._provider.read_bot(payload)
                if message is not None:
                    self.audio += self._line.take(message, monotonic())
            except ProtocolError as error:
                self.refuse(error)


class TelephonyTransport(WebSocketBase):
    """A phone call to a bot, in which the client plays the provider's part. Carries audio both ways.

    It reaches bots whose transport has that provider's serializer: bots of Pipecat's runner with an entry of its name
    in their `transport_params`, at ``/ws``. RTVI messages do not pass. The client derives from the audio who speaks, so
    events, turns, latencies and interruptions work as over other transports. The bot counts as ready when it has
    answered, or has not refused the call within 0.5 s. Texts and function calls are unknown.

    Args:
        provider: "twilio", "telnyx", "plivo" or "exotel".
        ws_url, headers: As in `WebSocketTransport`.
        token: Appended to the path, which a provider can send.
        from_number, to_number: Numbers of the caller and of the bot, sent to the bot. None: not sent.
        parameters: Further parameters that the provider passes on, such as Twilio's ``customParameters``.
        call_id: Id of each call. None: a new id for each call.
        codec: Codec of the caller's audio. None: the provider's usual one. Telnyx has "PCMU" and "PCMA".
        transcribe: ``transcribe(pcm, sample_rate_hz)`` returns the text of the bot's audio in a turn, for
            `Turn.bot_text`. The audio is mono, 16 bit. Called on a worker thread.
        loss: Share of the caller's frames of 20 ms that are lost, 0.0 to 1.0.
        jitter (seconds): Longest time for which frames are held back.
        seed: Seed of both: the same seed gives the same losses and delays. None: different each time.
        hangover (seconds): Silence after which a side has stopped speaking. A bot may pause between two sentences.
        options: The other arguments of `WebSocketTransport`, with the same defaults.

    Raises:
        ValueError: The provider does not pass these parameters on, or does not have this codec.
    """

    ends_in_time = True
    carries_messages = False
    receiver_class: ClassVar[type[WebSocketReceiver]] = PhoneReceiver

    def __init__(
        self,
        provider: ProviderName = "twilio",
        ws_url: str | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        from_number: str | None = None,
        to_number: str | None = None,
        parameters: Mapping[str, str] | None = None,
        call_id: str | None = None,
        codec: Codec | None = None,
        transcribe: Callable[[bytes, int], str] | None = None,
        loss: float = 0.0,
        jitter: float = 0.0,
        seed: int | None = None,
        hangover: float = 0.7,
        **options: Unpack[WebSocketOptions],
    ) -> None:
        _PROVIDER.check(provider=provider)
        STRING.or_none.check(from_number=from_number, to_number=to_number)
        STRINGS.or_none.check(parameters=parameters)
        NAME.or_none.check(call_id=call_id)
        one_of(*get_args(Codec)).or_none.check(codec=codec)
        _TRANSCRIBE.check(transcribe=transcribe)
        _SHARE.check(loss=loss)
        _JITTER.check(jitter=jitter)
        _SEED.check(seed=seed)
        SECONDS.check(hangover=hangover)
        super().__init__(ws_url, token, headers, **options)
        self._provider = PROVIDERS[provider]
        if codec is not None and codec not in self._provider.codecs:
            known = " or ".join(map(repr, self._provider.codecs))
            raise ValueError(f"codec of a call by {provider} must be {known}, which its bots hear, not {codec!r}")
        self.name = self.start_name = provider
        keys = _CREDENTIALS[provider]
        credentials = f", and {' and '.join(keys)} in its environment" if keys else ""
        self.needs: str = f"A bot of Pipecat's runner needs the entry {provider!r} in its transport_params{credentials}"
        self.transcribe = transcribe
        self._impairments = Impairments(loss=loss, jitter=jitter, seed=seed)
        self._hangover = hangover
        #: The current call, or the last one.
        self.call: PhoneCall = PhoneCall(
            provider=provider,
            call_id=call_id or "",
            stream_id="",
            from_number=from_number,
            to_number=to_number,
            parameters=dict(parameters or {}),
            codec=codec or self._provider.codecs[0],
        )
        self._provider.check(self.call)
        self._has_own_id = call_id is not None
        self._token_in_path = ""  # of the last address
        CallWriter(self.call, 0.0).opening()  # raises if a text cannot be sent
        self._line: PhoneLine | None = None
        self._task: ScheduledTask | None = None  # the steps of the line
        self._due = 0.0  # the time of the next step
        # The end of the connection, and the time until which the bot's last words are played. The I/O thread writes it.
        self._ended: tuple[TransportOptions, CloseInfo, float] | None = None

    @property
    def call_id(self) -> str:
        """The id of the current call, or of the last one; "" before the first."""
        return self.call.call_id

    @property
    def stream_id(self) -> str:
        """The id of the audio stream of the current call, or of the last one; "" before the first."""
        return self.call.stream_id

    # -- session ------------------------------------------------------------------------------------------------------

    def initialize(self, options: TransportOptions, on_message: Callable[[Any], None]) -> None:
        """Start a new call."""
        super().initialize(options, on_message)
        call_id = self.call.call_id if self._has_own_id else f"CA{os.urandom(16).hex()}"
        self.call = attrs.evolve(self.call, call_id=call_id, stream_id=f"MZ{os.urandom(16).hex()}")
        self._ended = self._line = None

    def _target(self, bundle: Any) -> tuple[SplitResult, dict[str, str]]:
        """Return the address, and the headers of the handshake."""
        url, headers = super()._target(bundle)
        query = urlencode(self._provider.query(self.call), quote_via=quote)
        return url._replace(query="&".join(filter(None, (url.query, query)))), headers

    def _with_token(self, url: SplitResult, token: str) -> SplitResult:
        self._token_in_path = token
        return url._replace(path=f"{url.path.rstrip('/')}/{token}")

    def _shown(self, url: SplitResult) -> SplitResult:
        return url._replace(path=url.path.removesuffix(self._token_in_path))

    def _make_receiver(self) -> WebSocketReceiver:
        options = self.options
        self._line = PhoneLine(
            self.call,
            Heard(self.name, self._hangover),
            self._impairments,
            wall_time(),
            send=self._send_text,
            play=lambda pcm: options.media.receive_audio(pcm, RATE_HZ, 1),
            report=options.on_messages,
        )
        return PhoneReceiver(options, self._provider, self._line)

    def _open_session(self) -> None:
        """Send the first messages of a call. From now on audio flows, including silence."""
        line, runtime = self._line, self.options._runtime
        assert line is not None, "connect() has returned"
        assert runtime is not None, "the session sets it"
        schedule = runtime.io.scheduler
        line.open(monotonic())
        self._due = schedule.beat()
        task = schedule.add(partial(self._step, line), self._due)
        with self._lock:
            is_open = self._connection is not None
            if is_open:
                self._task = task
        if not is_open:  # disconnect() was called
            task.cancel()

    def _step(self, line: PhoneLine, now: float) -> float | None:
        """Make a step of the line. On the I/O thread."""
        ended = self._ended
        try:
            if ended is None:
                line.step(self._due, now)
            else:
                line.play(now)
        except Exception as error:
            logger.exception("The line of a call failed; the call ends")
            if ended is not None:
                ended[0].on_closed(ended[1])
                return None
            if (connection := self._connection) is not None:
                connection.on_failure(error)  # sets `_ended`, which the next step reports
        if ended is not None and (not line.is_playing or now >= ended[2]):
            if not is_loss(ended[1]):
                line.close(now)  # else the bot did not stop to speak, but was cut off
            ended[0].on_closed(ended[1])
            return None
        self._due = max(self._due + STEP, now - _MOST_BEHIND)
        return self._due

    def _send_text(self, text: bytes, seconds: float) -> None:
        """Send a message of the provider. If the bot has hung up, the I/O thread reports how."""
        try:
            self._send(text, seconds)
        except DisconnectedError:
            logger.debug("Nothing more can be sent in this call")

    def _report_end(self, options: TransportOptions, info: CloseInfo) -> None:
        """Report the end of the call once all of the bot's audio was played, at the speed of a telephone."""
        # An earlier end is reported by the attempt's own error, with `diagnosis()`.
        is_connected = self.state is TransportState.READY
        if is_connected and self._hung_up and info.code is None:
            error = DisconnectedError(
                f"The bot hung up before it said anything: see its log. {self.needs}",
                initiator=info.initiator,
            )
            error.__cause__ = info.error
            info = attrs.evolve(info, error=error)
        line = self._line
        if line is None or self._task is None:
            options.on_closed(info)
            return
        line.drop_keys()
        self._ended = options, info, monotonic() + _LAST_WORDS

    def disconnect(self) -> None:
        """Hang up."""
        line, task = self._line, self._task
        if line is not None and task is not None:
            task.cancel()
            line.drop_keys()
            if self._ended is None:
                self._hang_up(line)
        try:
            super().disconnect()
        finally:
            # Not cleared earlier: if the bot ends the call first, its end waits for a step that never runs, and is not
            # reported. Read again here, because the session may have opened since.
            with self._lock:
                task, self._task = self._task, None
            if task is not None:
                task.cancel()
                if line is not None and line.unheard:
                    logger.warning(
                        "%.0f s of the bot's audio were not heard in this call: it sends far faster than a telephone "
                        "plays, and %.0f s wait at most",
                        line.unheard,
                        MAX_WAITING,
                    )

    def _hang_up(self, line: PhoneLine) -> None:
        """Have the I/O thread, which may be sending, send the last message."""
        runtime = self.options._runtime
        assert runtime is not None, "the session sets it"
        is_told = Latch()

        def tell() -> None:
            line.hang_up()
            is_told.set()

        runtime.io.call(tell)
        is_told.wait(Deadline(_STOP_TIMEOUT))

    def after_fork_in_child(self) -> None:
        """Forget the parent's call."""
        super().after_fork_in_child()
        self._task = self._line = None

    def stats(self) -> TransportStats:
        """Return the counters of the current session, or of the last one."""
        stats, line = super().stats(), self._line
        return stats if line is None else attrs.evolve(stats, audio_unsent=stats.audio_unsent + line.unsent)

    # -- messages and audio -------------------------------------------------------------------------------------------

    def send_message(self, message: RTVIMessage) -> None:
        """Refuse any message: a telephone carries none.

        Raises:
            UnsupportedFeatureError: Always.
        """
        raise UnsupportedFeatureError(
            f"A bot takes no {message.type!r} message by telephone ({self.name}). Speak to it: ask() takes the path of "
            "an audio file, or a source",
            feature=message.type,
        )

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        """Send the next frame of the caller's audio."""
        pcm = checked_audio(pcm, sample_rate_hz)
        line = self._line
        if line is None:
            raise DisconnectedError(_NO_CALL, initiator="client")
        runtime = self.options._runtime
        assert runtime is not None, "the session sets it"
        io = runtime.io
        if io.is_current:
            line.speak(pcm, sample_rate_hz, monotonic())
        else:
            io.call(lambda: line.speak(pcm, sample_rate_hz, monotonic()))

    def send_dtmf(self, keys: str) -> None:
        """Press keys of the telephone, one each 100 ms, and return when the last one was sent. Any thread.

        Raises:
            DisconnectedError: There is no call, or it ended first.
        """
        _KEY_TEXT.check(keys=keys)
        line = self._line
        if line is None or self._task is None or self._ended is not None:
            raise DisconnectedError(_NO_CALL, initiator="client")
        pressed = line.press(keys)
        try:
            pressed.over.wait(Deadline(None))  # other threads may press keys, too; the end of the call ends the wait
        finally:
            pressed.over.set()  # Ctrl-C: the rest is not pressed
        if pressed.left:
            raise DisconnectedError("The call ended before all keys were sent", initiator="network")
