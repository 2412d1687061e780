"""The line of one call: it plays the provider between a caller and a bot, in steps of 20 ms."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from ..concurrency.latch import Latch
from ..errors import ProtocolError
from ..media import pcm as pcm_tools
from ..media.g711 import alaw, mulaw
from ..media.pcm import MICROPHONE_RATE_HZ
from ..media.resample import HalfRate, RateConverter
from ..messages import RTVIMessage
from ..protocol.heard import Heard
from ..protocol.record import Record
from ..protocol.telephony import (
    PROVIDERS,
    RATE_HZ,
    CallAudio,
    CallWriter,
    ClearAudio,
    Codec,
    FromBot,
    PhoneCall,
    PlaybackMark,
)

#: Seconds between two steps.
STEP: Final = 0.02
#: Seconds of the bot's audio that may wait to be heard; more is dropped.
MAX_WAITING: Final = 60.0
# Marks that may wait for the audio before them to be heard: one each 20 ms of a minute, and a reserve.
_MAX_MARKS: Final = 4000
#: Seconds without a refusal after which the bot has the call.
PATIENCE: Final = 0.5
#: Seconds between two keys: equipment for tones does not separate closer ones.
KEY_GAP: Final = 0.1
# Seconds after which a source that gave nothing is silent.
_SOURCE_GAP: Final = 0.05
# Audio of the caller that is late by more than this many seconds is dropped, not sent in a burst.
_MAX_LATE: Final = 0.2

_FRAMES_PER_SECOND: Final = 50
_FRAME_BYTES: Final = 2 * RATE_HZ // _FRAMES_PER_SECOND
_SILENCE: Final = bytes(_FRAME_BYTES)


def encoded(pcm: bytes, codec: Codec) -> bytes:
    """Return PCM of 8 kHz in the codec of a call."""
    if codec == "L16":
        return pcm
    return (mulaw() if codec == "PCMU" else alaw()).encode(pcm_tools.samples_of(pcm))


def decoded(payload: bytes, codec: Codec) -> bytes:
    """Return a payload as PCM of 8 kHz, without an incomplete last sample."""
    if codec == "L16":
        return payload[: len(payload) - len(payload) % 2]
    return (mulaw() if codec == "PCMU" else alaw()).decode(payload)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Impairments(Record):
    """The network's damage to the caller's audio.

    Attributes:
        loss: share of the frames of 20 ms that are replaced by silence.
        jitter: longest time, in seconds, for which frames are held back and then sent together.
        seed: seed of both. None: different values each time.
    """

    loss: float = 0.0
    jitter: float = 0.0
    seed: int | None = None


class KeySequence:
    """Keys that are pressed one after the other.

    Args:
        keys: the keys to press.

    Attributes:
        left: the keys that were not sent yet.
        over: set when the last key was sent, or no more keys will be sent. Any thread may set it.
    """

    def __init__(self, keys: str) -> None:
        self.left: str = keys
        self.over: Latch = Latch()

    def take(self) -> str:
        """Return the next key, which is sent now."""
        key, self.left = self.left[0], self.left[1:]
        if not self.left:
            self.over.set()
        return key


class PhoneLine:
    """The line of one call: it paces and encodes the caller's audio, and plays the bot's.

    The I/O thread uses it, apart from the methods that any thread may call. Times are monotonic seconds.

    Args:
        call: the call.
        heard: derives from the audio who speaks.
        impairments: the damage to the caller's audio.
        wall: Unix time at the start of the call.
        send: `send(text, seconds)` sends a JSON text, which holds that many seconds of the caller's audio.
        play: takes the PCM, of 8 kHz, that is heard in a step.
        report: takes the messages that follow from the audio.

    Attributes:
        unsent: seconds of the caller's audio that were dropped because they were late.
        unheard: seconds of the bot's audio that were dropped because too much waited.
    """

    def __init__(
        self,
        call: PhoneCall,
        heard: Heard,
        impairments: Impairments,
        wall: float,
        *,
        send: Callable[[bytes, float], None],
        play: Callable[[bytes], None],
        report: Callable[[list[RTVIMessage]], None],
    ) -> None:
        self._provider = PROVIDERS[call.provider]
        self._codec = call.codec
        self._silence = encoded(_SILENCE, call.codec)
        self._heard = heard
        self._writer = CallWriter(call, wall)
        self._send, self._play, self._report = send, play, report
        self.unsent: float = 0.0
        self.unheard: float = 0.0
        self._began_at = 0.0
        # The caller: from PCM of any rate to messages.
        self._converter: HalfRate | RateConverter | None = None
        self._rate_hz = 0
        self._spoken = bytearray()  # 8 kHz, less than a frame
        self._spoke_at = 0.0
        self._sent_until = 0.0  # the time up to which the bot has audio
        self._message = bytearray()  # encoded, less than a message
        self._message_frames = round(self._provider.frame_seconds / STEP)
        self._frames = 0  # in `_message`
        self._lossy = random.Random(impairments.seed)  # noqa: S311 - not for secrets
        self._holding = random.Random(impairments.seed)  # noqa: S311
        self._loss, self._jitter = impairments.loss, impairments.jitter
        self._held: list[bytes] = []
        self._held_until = 0.0
        self._keys: deque[KeySequence] = deque()
        self._takes_keys = True
        self._key_at = 0.0
        # The bot: its audio that waits to be heard, and the marks, by their position in the audio.
        self._waiting = bytearray()
        self._played = 0  # bytes since the start of the call
        self._marks: deque[tuple[int, str]] = deque()

    @property
    def is_playing(self) -> bool:
        """True if audio of the bot waits to be heard."""
        return bool(self._waiting)

    # -- the call -----------------------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Announce the call to the bot. Silence flows from now on, because a bot may wait for it."""
        self._began_at = self._sent_until = now
        for text in self._writer.opening():
            self._send(text, 0.0)

    def step(self, due: float, now: float) -> None:
        """Send silence if the caller is silent, and play 20 ms of the bot.

        Args:
            due: the time of the step. After a stop of the process, missed steps run with their original times, and so
                do the steps of the caller's source. This keeps the order.
            now: the current time, at or after `due`.
        """
        if now - self._began_at >= PATIENCE:
            self._tell(self._heard.answered())
        is_speaking = due - self._spoke_at < _SOURCE_GAP
        if not is_speaking:
            self._flush(now)
        self._sent_until = max(self._sent_until, due - 2 * _SOURCE_GAP)
        # A frame of the caller that is late must not get a hole before it.
        while self._sent_until <= due - (_SOURCE_GAP if is_speaking else 0.0):
            self._say(_SILENCE, now)
        if self._held and now >= self._held_until:
            self._release()
        while self._keys and self._keys[0].over.is_set():
            self._keys.popleft()
        if self._keys and now - self._key_at >= KEY_GAP:
            self._key_at = now
            self._send(self._writer.key(self._keys[0].take(), now - self._began_at), 0.0)
        self.play(now)

    def press(self, keys: str) -> KeySequence:
        """Press keys, one each 100 ms. Any thread."""
        pressed = KeySequence(keys)
        self._keys.append(pressed)
        if not self._takes_keys:
            self.drop_keys()
        return pressed

    def drop_keys(self) -> None:
        """Press no more keys: the call ends. Any thread."""
        self._takes_keys = False
        for pressed in self._keys.copy():
            pressed.over.set()

    def hang_up(self) -> None:
        """Tell the bot that the caller hangs up. Nothing is sent after this message."""
        self._release()
        if (text := self._writer.stop()) is not None:
            self._send(text, 0.0)
        self._send = _send_nothing

    def close(self, now: float) -> None:
        """Report that the speech ends here. No more audio will be heard."""
        self._tell(self._heard.closed(now))

    # -- the caller ---------------------------------------------------------------------------------------------------

    def speak(self, pcm: bytes, sample_rate_hz: int, now: float) -> None:
        """Send the next audio of the caller, usually 20 ms, at the time of its recording."""
        self._spoke_at = now
        if sample_rate_hz != self._rate_hz:
            self._flush(now)
            self._rate_hz = sample_rate_hz
            self._converter = _converter(sample_rate_hz)
        if isinstance(self._converter, HalfRate):
            self._spoken += self._converter.convert(pcm)
        elif self._converter is not None:
            self._spoken += self._converter.convert(pcm, sample_rate_hz)
        else:
            self._spoken += pcm
        self._say_all(now)

    def _flush(self, now: float) -> None:
        """Send the rest of the audio in the converter: the source is silent, and a syllable must not wait for more."""
        if isinstance(self._converter, RateConverter):
            self._spoken += self._converter.finish()
        if self._spoken:
            self._spoken += bytes(-len(self._spoken) % _FRAME_BYTES)
            self._say_all(now)

    def _say_all(self, now: float) -> None:
        while len(self._spoken) >= _FRAME_BYTES:
            frame = bytes(self._spoken[:_FRAME_BYTES])
            del self._spoken[:_FRAME_BYTES]
            self._say(frame, now)

    def _say(self, frame: bytes, now: float) -> None:
        """Send a frame of 20 ms, unless it is far too late."""
        self._sent_until += STEP
        if self._sent_until < now - _MAX_LATE:
            self.unsent += 0.0 if frame == _SILENCE else STEP
            return
        if self._loss and self._lossy.random() < self._loss:
            frame = _SILENCE
        if frame == _SILENCE:
            level, payload = 0.0, self._silence
        else:
            level, payload = pcm_tools.rms(frame), encoded(frame, self._codec)
        self._tell(self._heard.caller(level, now))
        self._message += payload
        self._frames += 1
        if self._frames < self._message_frames:
            return
        message, self._frames = bytes(self._message), 0
        self._message.clear()
        if not self._jitter:
            self._send_audio(message, now)
            return
        if not self._held:
            self._held_until = now + self._holding.uniform(0.0, self._jitter)
        self._held.append(message)

    def _release(self) -> None:
        held, self._held = self._held, []
        for payload in held:
            self._send_audio(payload, self._held_until)

    def _send_audio(self, payload: bytes, now: float) -> None:
        self._send(self._writer.audio(payload, now - self._began_at), self._message_frames * STEP)

    # -- the bot ------------------------------------------------------------------------------------------------------

    def take(self, message: FromBot, now: float) -> float:
        """Take a message of the bot; return the seconds of audio in it.

        Raises:
            ProtocolError: too many marks wait.
        """
        self._tell(self._heard.answered())
        if isinstance(message, ClearAudio):
            self._clear(now)
        elif isinstance(message, PlaybackMark):
            if len(self._marks) >= _MAX_MARKS:
                raise ProtocolError(f"a mark, while {_MAX_MARKS} others wait for the audio before them to be heard")
            self._marks.append((self._played + len(self._waiting), message.name))
            self._answer_marks()
        elif isinstance(message, CallAudio):
            pcm = decoded(message.payload, self._provider.bot_codec)
            room = int(MAX_WAITING * 2 * RATE_HZ) - len(self._waiting)
            self._waiting += pcm[:room]
            self.unheard += max(0, len(pcm) - room) / (2 * RATE_HZ)
            return len(pcm) / (2 * RATE_HZ)
        return 0.0

    def play(self, now: float) -> None:
        """Play the next 20 ms of the bot, or silence."""
        pcm = bytes(self._waiting[:_FRAME_BYTES])
        if pcm:
            del self._waiting[:_FRAME_BYTES]
            self._played += len(pcm)
            self._play(pcm)
        self._tell(self._heard.bot(pcm_tools.rms(pcm) if pcm else 0.0, now))
        if self._marks:
            self._answer_marks()

    def _answer_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._played:
            self._send(self._writer.played(self._marks.popleft()[1]), 0.0)

    def _clear(self, now: float) -> None:
        is_unheard = bool(self._waiting)
        self._played += len(self._waiting)
        self._waiting.clear()
        self._answer_marks()
        if (text := self._writer.cleared()) is not None:
            self._send(text, 0.0)
        self._tell(self._heard.cleared(now, is_unheard=is_unheard))

    def _tell(self, messages: list[RTVIMessage]) -> None:
        if messages:
            self._report(messages)


def _send_nothing(_text: bytes, _seconds: float) -> None:
    """Replace the function that sends, once the caller has hung up."""


def _converter(sample_rate_hz: int) -> HalfRate | RateConverter | None:
    if sample_rate_hz == RATE_HZ:
        return None
    if sample_rate_hz == MICROPHONE_RATE_HZ:
        try:
            return HalfRate()
        except ImportError:  # MissingExtraError: numpy is not installed
            pass
    return RateConverter(RATE_HZ)
