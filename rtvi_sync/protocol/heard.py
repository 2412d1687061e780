"""Speech in a call without RTVI, detected by ear: from the levels of both sides, and the bot's orders to be silent.

A side speaks from its first audible frame. It stops when it has been silent for the hang-over, or when the other side
speaks after a short pause. The results are the messages that an RTVI bot would have sent. The message that a side has
stopped has in `AGO` how long the side has been silent. Pure: callers pass the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .message import RTVIMessage

#: The key in the data of such a message: how many seconds ago the event happened.
AGO: Final = "ago"

#: RMS, of 32768, below which a frame is silent. The noise of G.711 is below it.
_FLOOR: Final = 30.0
# A frame below this share (-28 dB) of the loudest recent level contains breath and noise instead of speech.
_SHARE: Final = 0.04
# The share of the loudest level that remains one frame of 20 ms later. It halves in 3.5 s.
_FADING: Final = 0.996
# Seconds of silence after which a side has stopped, if the other one speaks. Pauses within words are shorter.
_PAUSE: Final = 0.2
# Frames in a row that count as speech of the caller. A click is shorter, and would be a question that no bot answers.
_ONSET: Final = 3


def moment_of(data: Any, at: float) -> float:
    """Return when an event happened that was reported at `at`, by the data of its message."""
    ago = data.get(AGO) if isinstance(data, Mapping) else None
    return at - ago if isinstance(ago, float) and 0.0 < ago < 60.0 else at


class HeardSide:
    """One side of the line, in frames of 20 ms.

    Args:
        name: "user" or "bot", as messages name it.
        onset: The number of audible frames in a row that count as speech.
    """

    def __init__(self, name: str, onset: int) -> None:
        self._name = name
        self._onset = onset
        self._loudest = 0.0
        self._audible_frames = 0  # in a row
        self.is_speaking: bool = False
        #: When the last audible frame arrived. Meaningless while the side is silent.
        self.audible_at: float = 0.0

    def take(self, level: float, at: float) -> bool:
        """Take the level of a frame. Return whether speech starts with it."""
        self._loudest = max(level, self._loudest * _FADING)
        if level < max(_FLOOR, _SHARE * self._loudest):
            self._audible_frames = 0
            return False
        self.audible_at = at
        self._audible_frames += 1
        begins = not self.is_speaking and self._audible_frames >= self._onset
        self.is_speaking = self.is_speaking or begins
        return begins

    def has_paused(self, at: float, seconds: float) -> bool:
        """Return whether the side speaks, but was silent for the last `seconds`."""
        return self.is_speaking and at - self.audible_at >= seconds

    def started(self) -> RTVIMessage:
        """Return the message that the side speaks."""
        return RTVIMessage(f"{self._name}-started-speaking")

    def stop(self, at: float) -> RTVIMessage:
        """Let the side be silent, and return the message for that."""
        self.is_speaking, self._audible_frames = False, 0
        return RTVIMessage(f"{self._name}-stopped-speaking", {AGO: max(0.0, at - self.audible_at)})


class Heard:
    """The audible events of one call. One thread at a time uses it.

    Each method returns the resulting messages, in order. Times are seconds of one monotonic clock.

    Args:
        library: The bot's library, for `bot-ready`.
        hangover: Seconds of silence after which a side has stopped speaking.
    """

    def __init__(self, library: str, hangover: float) -> None:
        self._ready = RTVIMessage("bot-ready", {"version": "", "about": {"library": library}})
        self._hangover = hangover
        self._user = HeardSide("user", _ONSET)
        self._bot = HeardSide("bot", 1)
        self._is_ready = False

    def answered(self) -> list[RTVIMessage]:
        """Record that the bot has the call: it has sent something, or has not refused the call in time."""
        if self._is_ready:
            return []
        self._is_ready = True
        return [self._ready]

    def caller(self, level: float, at: float) -> list[RTVIMessage]:
        """Take the RMS of the next 20 ms of the caller, as it is sent."""
        messages: list[RTVIMessage] = []
        if self._user.take(level, at):
            messages.append(self._user.started())
        if self._user.has_paused(at, self._hangover):
            messages.append(self._user.stop(at))
        # The bot's next words are a new answer, even if it answers before the hang-over has passed.
        if self._user.is_speaking and self._bot.has_paused(self._user.audible_at, _PAUSE):
            messages.append(self._bot.stop(at))
        return messages

    def bot(self, level: float, at: float) -> list[RTVIMessage]:
        """Take the RMS of the bot's next 20 ms, 0.0 for silence."""
        messages: list[RTVIMessage] = []
        begins = self._bot.take(level, at)
        if self._bot.is_speaking and self._user.has_paused(self._bot.audible_at, _PAUSE):
            messages.append(self._user.stop(at))
        if begins:
            messages.append(self._bot.started())
        if self._bot.has_paused(at, self._hangover):
            messages.append(self._bot.stop(at))
        return messages

    def cleared(self, at: float, *, is_unheard: bool) -> list[RTVIMessage]:
        """Record that the bot has dropped its audio. Pipecat's bots do so whenever the caller starts to speak.

        Args:
            at: Now.
            is_unheard: True if some of the audio was not heard yet.
        """
        if not is_unheard and (not self._bot.is_speaking or self._bot.has_paused(at, _PAUSE)):
            return [self._bot.stop(at)] if self._bot.is_speaking else []
        stopped = [self._bot.stop(at)] if self._bot.is_speaking else []
        return [RTVIMessage("bot-interrupted"), *stopped]

    def closed(self, at: float) -> list[RTVIMessage]:
        """Record that no more audio will be heard."""
        return [side.stop(at) for side in (self._user, self._bot) if side.is_speaking]
