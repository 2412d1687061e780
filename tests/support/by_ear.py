"""A bot that no message reaches, as by telephone: its transport tells by ear who speaks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from rtvi_sync import MemoryTransport, RTVIClient, RTVIMessage
from rtvi_sync.media import BytesSource, NullSink, SilenceSource
from tests.support.pcm import rms
from tests.support.scripted_talk import RATE, tone
from tests.support.slowness import GUARD

QUESTION = BytesSource(tone(0.2), RATE)
"""The user's speech."""

# The quiet frames after which the user has stopped to speak.
_QUIET_FRAMES = 5
_AUDIBLE = 100.0
# Seconds of a frame of the bot's audio.
_FRAME = 0.02


class EarTransport(MemoryTransport):
    """A transport without messages, to a bot that answers speech by `answers`.

    Args:
        transcribe: as of `Transport`.
        answers: seconds of each answer, in order; the last one is repeated. 0: it says nothing; infinity: it goes on
            until it is interrupted.
        greeting: seconds of its first speech; 0: none.
    """

    name = "by ear"
    carries_messages = False

    def __init__(
        self,
        transcribe: Callable[[bytes, int], Any] | None = None,
        answers: tuple[float, ...] = (0.3,),
        greeting: float = 0,
    ) -> None:
        super().__init__(audio=True)
        self.transcribe = transcribe
        self.answers = itertools.chain(answers, itertools.repeat(answers[-1]))
        self._greeting = greeting
        self._is_speaking = False
        self._is_held = False
        self._quiet = 0

    def send_ready_message(self) -> None:
        super().send_ready_message()
        self.tell("bot-ready", {"version": "", "about": {"library": "ear"}})
        if self._greeting:
            self.say(self._greeting)

    def send_audio(self, pcm: bytes, sample_rate_hz: int) -> None:
        super().send_audio(pcm, sample_rate_hz)
        is_loud = rms(pcm) > _AUDIBLE
        self._quiet = 0 if is_loud else self._quiet + 1
        if is_loud and not self._is_speaking:
            self._is_speaking = True
            self.tell("user-started-speaking")
            if self._is_held:
                self._is_held = False
                self.tell("bot-interrupted")
                self.tell("bot-stopped-speaking")
        elif self._is_speaking and self._quiet == _QUIET_FRAMES:
            self._is_speaking = False
            self.tell("user-stopped-speaking")
            self.say(next(self.answers))

    def tell(self, type_: str, data: Any = None) -> None:
        """Report heard events to the client."""
        self.receive(RTVIMessage(type_, data))

    def begin(self, seconds: float) -> None:
        """Speak, as a bot that goes on until it is interrupted."""
        self._is_held = True
        self.tell("bot-started-speaking")
        self.receive_audio(tone(seconds), RATE)

    def say(self, seconds: float) -> None:
        """Speak, as the bot."""
        if seconds == math.inf:
            self.begin(1.0)
        elif seconds:
            self.tell("bot-started-speaking")
            for _ in range(round(seconds / _FRAME)):
                self.receive_audio(tone(_FRAME), RATE)
            self.tell("bot-stopped-speaking")


def ear_client(transport: EarTransport | None = None, **options: Any) -> RTVIClient:
    """Return a client of such a bot."""
    given = {"mic": SilenceSource(), "speaker": NullSink(), "connect_timeout": GUARD, **options}
    return RTVIClient(transport=transport or EarTransport(), **given)
