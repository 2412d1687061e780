"""Who speaks in a call without RTVI, by what is heard: the levels of both sides, and the bot's orders to be silent.

A side speaks from its first audible frame until it has been silent for the hang-over, or until the other side speaks
after a short pause. The result are the messages that an RTVI bot would have sent; one that a side has stopped says in
`AGO` for how long it has been silent. Pure: times are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .message import RTVIMessage

#: The key in the data of a message by ear: how many seconds ago it happened.
AGO: Final = "ago"

#: RMS, of 32768, below which a frame is silent; the noise of G.711 is below it.
_FLOOR: Final = 30.0
# Share of the level of the loudest frame lately (-28 dB) below which a frame holds breath and noise instead of speech.
_SHARE: Final = 0.04
# How much of the loudest level is left one frame of 20 ms later: half of it after 3.5 s.
_FADING: Final = 0.996
# Seconds of silence after which a side has stopped once the other one speaks. Pauses within words are shorter.
_PAUSE: Final = 0.2
# Frames in a row from which on the caller speaks: a click is shorter, and would be a question that no bot answers.
_ONSET: Final = 3


def moment_of(data: Any, at: float) -> float:
    """Return when something happened that was reported at `at`, by the data of its message."""
    ago = data.get(AGO) if isinstance(data, Mapping) else None
    return at - ago if isinstance(ago, float) and 0.0 < ago < 60.0 else at


class HeardSide:
    """One side of the line, in frames of 20 ms.

    Args:
        name: "user" or "bot", as messages name it.
        onset: audible frames in a row with which speech begins.
    """

    def __init__(self, name: str, onset: int) -> None:
        self._name = name
        self._onset = onset
        self._loudest = 0.0
        self._audible_frames = 0  # in a row
        self.is_speaking: bool = False
        #: When the last audible frame came; of a side that is silent it has no meaning.
        self.audible_at: float = 0.0

    def take(self, level: float, at: float) -> bool:
        """Take the level of a frame; return whether speech begins with it."""
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
        """Return whether the side speaks, and was silent for the last `seconds`."""
        return self.is_speaking and at - self.audible_at >= seconds

    def started(self) -> RTVIMessage:
        """Return the message that the side speaks."""
        return RTVIMessage(f"{self._name}-started-speaking")

    def stop(self, at: float) -> RTVIMessage:
        """Let the side be silent, and return the message of that."""
        self.is_speaking, self._audible_frames = False, 0
        return RTVIMessage(f"{self._name}-stopped-speaking", {AGO: max(0.0, at - self.audible_at)})


class Heard:
    """What is heard in one call. One thread at a time uses it.

    Each method returns the messages that follow, in order. Times are seconds of one clock that does not go back.

    Args:
        library: of the bot, in `bot-ready`.
        hangover: seconds of silence after which a side has stopped to speak.
    """

    def __init__(self, library: str, hangover: float) -> None:
        self._ready = RTVIMessage("bot-ready", {"version": "", "about": {"library": library}})
        self._hangover = hangover
        self._user = HeardSide("user", _ONSET)
        self._bot = HeardSide("bot", 1)
        self._is_ready = False

    def answered(self) -> list[RTVIMessage]:
        """Take that the bot has the call: it has sent something, or has not refused the call in time."""
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
        # What the bot says next is no more of what it has said: it may answer before the hang-over has passed.
        if self._user.is_speaking and self._bot.has_paused(self._user.audible_at, _PAUSE):
            messages.append(self._bot.stop(at))
        return messages

    def bot(self, level: float, at: float) -> list[RTVIMessage]:
        """Take the RMS of the next 20 ms that are heard, 0.0 if nothing is."""
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
        """Take that the bot has dropped its audio. Pipecat's bots do so whenever the caller begins to speak.

        Args:
            at: now.
            is_unheard: some of it was not heard yet.
        """
        if not is_unheard and (not self._bot.is_speaking or self._bot.has_paused(at, _PAUSE)):
            return [self._bot.stop(at)] if self._bot.is_speaking else []
        stopped = [self._bot.stop(at)] if self._bot.is_speaking else []
        return [RTVIMessage("bot-interrupted"), *stopped]

    def closed(self, at: float) -> list[RTVIMessage]:
        """Take that nothing will be heard any more."""
        return [side.stop(at) for side in (self._user, self._bot) if side.is_speaking]
