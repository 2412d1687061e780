"""A turn of a conversation, with its audio and its latencies."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from ..media.turn_audio import TurnAudio
from ..protocol.turn_record import TurnRecord
from ..session.params import Seconds
from .turn_checks import ExpectedCalls, Texts, TurnChecks

__tracebackhide__ = True  # pytest shows the line of the test, and not those of this module


def _between(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None


@attrs.frozen(kw_only=True, repr=False)
class Turn(TurnRecord):
    """What the user said and what the bot answered, or what the bot said unasked.

    The properties are in seconds, by the clock of the client, at receipt; None where one of both ends is unknown.

    Attributes:
        audio: what the bot said, from the moment that it had the user's words; of a turn that was interrupted, until
            then. Empty while the turn is in progress.
        user_audio: what the user said, its last minute at most. Empty while the turn is in progress, and for a typed
            text.
        bot: what the bot is: "RTVI 2.2.0, pipecat-ai 1.14.0".
    """

    audio: TurnAudio = attrs.field(factory=TurnAudio)
    user_audio: TurnAudio = attrs.field(factory=TurnAudio)
    bot: str = ""

    @property
    def voice_to_voice(self) -> float | None:
        """Return how long the user heard nothing: from the last audible sample sent to the first one of the answer."""
        return self.time_to_first_audio if self.modality == "audio" else None

    @property
    def time_to_first_audio(self) -> float | None:
        """Return the time from the end of the user's turn to the first audible sample of the answer."""
        return _between(self.timings.user_stopped, self.timings.first_audio)

    @property
    def time_to_first_token(self) -> float | None:
        """Return the time from the end of the user's turn to the first text of the language model."""
        return _between(self.timings.user_stopped, self.timings.first_token)

    @property
    def turn_detection(self) -> float | None:
        """Return the time from the end of the user's voice to the bot's report that the user had stopped speaking."""
        return _between(self.timings.user_stopped, self.timings.user_stopped_reported)

    @property
    def transcription(self) -> float | None:
        """Return the time from the end of the user's voice to the last final transcript."""
        return _between(self.timings.user_stopped, self.timings.transcribed)

    @property
    def duration(self) -> float | None:
        """Return the time from the turn's begin to its end."""
        timings = self.timings
        starts = (timings.user_started, timings.llm_started, timings.bot_started_speaking, timings.first_audio)
        return _between(next((start for start in starts if start is not None), None), timings.ended)

    def expect(
        self,
        *,
        contains: Texts | None = None,
        excludes: Texts | None = None,
        matches: str | re.Pattern[str] | None = None,
        calls: ExpectedCalls | None = None,
        absent_calls: Sequence[str] = (),
        voice_to_voice: Seconds | None = None,
        first_audio: Seconds | None = None,
        interrupted: bool = False,
        errors: bool = False,
    ) -> Turn:
        """Check the turn, and return it.

        Args:
            contains: the text, or texts, that the bot must have said, whatever the spacing.
            excludes: what it must not have said. A text that was cut at its limit fails.
            matches: a regular expression that must be found in what it said.
            calls: functions that it must have called, in any order: ``{"get_weather": {"city": "Oslo"}}``, or a list of
                names and of (name, arguments). Arguments that are not given are free.
            absent_calls: functions that it must not have called; a call that is reported without a name may be any.
            voice_to_voice, first_audio: the latency in seconds that is not to be exceeded; the second one is
                `time_to_first_audio`.
            interrupted: True: it must have been interrupted; False: it must not.
            errors: True: the bot may have reported errors, and may have failed.

        Raises:
            ExpectationError: a demand is not met; the text says which, and what happened in the turn.
        """
        checks = TurnChecks(
            contains=contains,
            excludes=excludes,
            matches=matches,
            calls=calls,
            absent_calls=absent_calls,
            voice_to_voice=voice_to_voice,
            first_audio=first_audio,
            interrupted=interrupted,
            errors=errors,
        )
        checks.check(self)
        return self
