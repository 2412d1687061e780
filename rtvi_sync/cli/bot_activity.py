"""Whether the bot is at it, from what is seen and heard of it. Pure."""

from __future__ import annotations

import math

import attrs

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.recording.transcript import BOT_TEXTS

# How long a bot may think before it begins to answer.
PATIENCE = 10.0
# A bot that has told that it stopped speaking may have stopped between two sentences.
_SETTLED = 0.8
# One that has not told may be waiting for its speech synthesis.
_QUIET = 3.0

SIGNS = (*BOT_TEXTS, RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING)


@attrs.define
class Activity:
    """What the bot does; moments are monotonic seconds.

    Attributes:
        last_text: when text of the bot's arrived last.
        last_heard: when audible audio arrived last.
        silent_from: when it has all been played.
        speaking: the bot has told that it began to speak, and not that it stopped.
        turned_at: when it told either last.
    """

    last_text: float = -math.inf
    last_heard: float = -math.inf
    silent_from: float = -math.inf
    speaking: bool = False
    turned_at: float = -math.inf

    def take(self, event: Event) -> None:
        """Take in an event of the types in `SIGNS`."""
        if event.type in BOT_TEXTS:
            self.last_text = event.received_at
        else:
            self.speaking = event.type is RTVIEvent.BOT_STARTED_SPEAKING
            self.turned_at = event.received_at

    def since(self, moment: float) -> bool:
        """Whether the bot has said anything after `moment`."""
        began_to_speak = self.turned_at if self.speaking else -math.inf
        return max(self.last_text, self.last_heard, began_to_speak) > moment

    def over(self, now: float) -> bool:
        """Whether it has said what it had to say."""
        told = self.turned_at > self.last_text
        # A bot that was interrupted may never tell that it stopped.
        pause = PATIENCE if self.speaking else _SETTLED if told else _QUIET
        return now > max(self.last_text, self.silent_from, self.turned_at) + pause
