"""The bot's activity, derived from its events and its audio. Pure."""

from __future__ import annotations

import math

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.recording.transcript import BOT_TEXTS

# Seconds that a bot may take before it begins to answer.
ANSWER_TIMEOUT = 10.0
# Seconds after `bot-stopped-speaking`: the bot may have stopped between two sentences.
_SENTENCE_PAUSE = 0.8
# Seconds without that event: the bot may be waiting for its speech synthesis.
_SYNTHESIS_PAUSE = 3.0

ACTIVITY_EVENTS = (*BOT_TEXTS, RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING)


@attrs.define
class BotActivity:
    """What the bot does. Times are monotonic seconds.

    Attributes:
        last_text: when the bot's text arrived last.
        last_audible: when audible audio arrived last.
        playback_ends_at: when all of that audio has been played.
        speaking: the bot has reported that it started to speak, and not that it stopped.
        speaking_changed_at: when it reported either last.
    """

    last_text: float = -math.inf
    last_audible: float = -math.inf
    playback_ends_at: float = -math.inf
    speaking: bool = False
    speaking_changed_at: float = -math.inf

    def update(self, event: Event) -> None:
        """Apply an event of one of the types in `ACTIVITY_EVENTS`."""
        if event.type in BOT_TEXTS:
            self.last_text = event.received_at
        else:
            self.speaking = event.type is RTVIEvent.BOT_STARTED_SPEAKING
            self.speaking_changed_at = event.received_at

    def has_answered_since(self, moment: float) -> bool:
        """Tell whether the bot has said anything after `moment`."""
        began_to_speak = self.speaking_changed_at if self.speaking else -math.inf
        return max(self.last_text, self.last_audible, began_to_speak) > moment

    def has_finished(self, now: float) -> bool:
        """Tell whether the bot's answer is complete at `now`."""
        reported = self.speaking_changed_at > self.last_text
        # A bot that was interrupted may never report that it stopped.
        pause = ANSWER_TIMEOUT if self.speaking else _SENTENCE_PAUSE if reported else _SYNTHESIS_PAUSE
        return now > max(self.last_text, self.playback_ends_at, self.speaking_changed_at) + pause
