"""What is known of one turn of a conversation. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import attrs

from ..protocol.record import Record
from ..protocol.session_payloads import ErrorData
from ..protocol.text import quoted
from ..protocol.turn_payloads import PipecatMetricsData

TurnStatus: TypeAlias = Literal["in_progress", "complete", "interrupted", "failed"]
"""Whether the bot is still to answer or answering, has said everything, was interrupted, or is gone."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReportedFunctionCall(Record):
    """A call of a function by the bot's language model, as far as the bot reports it.

    Attributes:
        function_name, arguments, result: None if the bot withholds them, or not yet; the last two also if the turn has
            no room for them: its arguments, results, errors and metrics have a million characters at most.
        tool_call_id: the bot's id of the call; None if it was not told.
        cancelled: True if it was ended before it had a result.
        started, stopped: monotonic seconds at receipt; None: not yet.
    """

    function_name: str | None = None
    tool_call_id: str | None = None
    arguments: dict[str, Any] | None = None
    result: Any = None
    cancelled: bool = False
    started: float | None = None
    stopped: float | None = None


@attrs.frozen(kw_only=True, eq=False, repr=False)
class TurnTimings(Record):
    """When the parts of a turn came, in seconds of the client's monotonic clock, at receipt. None: not yet, or never.

    Attributes:
        user_started: the bot reported that the user began to speak; a typed text was sent.
        user_stopped: a typed text was sent; of a spoken turn, the last audible sample was.
        user_stopped_reported: the bot reported that the user had stopped speaking.
        transcribed: the last final transcript.
        acknowledged: the bot told that it has the user's text, or the end of the user's speech.
        llm_started, first_token: of the answer's first run of the language model.
        first_audio: the first audible sample of the answer.
        bot_started_speaking, bot_stopped_speaking: the first, and the last, report.
        interrupted_at: the bot was interrupted.
        ended: the turn was over.
    """

    user_started: float | None = None
    user_stopped: float | None = None
    user_stopped_reported: float | None = None
    transcribed: float | None = None
    acknowledged: float | None = None
    llm_started: float | None = None
    first_token: float | None = None
    first_audio: float | None = None
    bot_started_speaking: float | None = None
    bot_stopped_speaking: float | None = None
    interrupted_at: float | None = None
    ended: float | None = None


Speech: TypeAlias = tuple[float, float]
"""When the user began to speak, and had stopped; infinity: not yet."""


def speech_of(timings: TurnTimings, *, is_speaking: bool = False) -> Speech:
    """Return when the user spoke, by what the bot reported of a turn.

    Args:
        timings: of a spoken turn.
        is_speaking: the user has begun again.
    """
    ends = timings.user_stopped_reported, timings.acknowledged, timings.llm_started, timings.first_audio, timings.ended
    end = None if is_speaking else next((moment for moment in ends if moment is not None), None)
    return timings.user_started or 0.0, math.inf if end is None else end


@attrs.frozen(eq=False, repr=False)
class TimelineEntry(Record):
    """One thing that happened in a turn.

    Attributes:
        at: monotonic seconds.
        who: "you", "bot", or "" for what neither of them said.
        kind: what it was: "typed", "speaks", "silent", "acknowledged", "model runs", "calls", "returned", "error", ...
        text: what was said, called (`get_weather({"city": "Oslo"})`) or returned (`get_weather {"temperature": 12}`),
            2000 characters at most; "" if there is nothing to quote.
    """

    at: float
    who: Literal["you", "bot", ""]
    kind: str
    text: str = ""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class TurnRecord(Record):
    """What the user said and what the bot answered, or what the bot said unasked.

    Attributes:
        number: of the turn, from 1 in each client.
        session: the number of the session it began in, from 1.
        initiator: who began it.
        modality: "text": the user typed. "audio": the user spoke. None: the bot began.
        message_id: of the message that asked; None: the user spoke, or the bot began.
        status: see `TurnStatus`.
        assumed: why it counts as complete although the bot owed something: how long was waited for what. None: nothing
            was owed.
        user_text: what the user typed or was heard to say, 100,000 characters at most. None: no one can know it,
            because the transport carries no messages, as by telephone.
        bot_text: all that the bot wrote and said, 100,000 characters at most. Over such a transport it is what the
            transport's `transcribe` makes of the audio; None without it.
        spoken_text: what it has spoken of that; the same as `bot_text` if it was complete.
        spoken_exact: how exactly the bot reports that: by the "word", or by the "sentence", so that a sentence it was
            interrupted in is missing. None: it does not report it.
        function_calls: those of the answer, in the order in which they began, 100 at most; () over such a transport.
        errors: what the bot reported during the answer, 20 at most.
        metrics: the measurements that the bot sent during the answer, 50 at most.
        timeline: what happened, in order, 500 entries at most.
        timings: when.
    """

    number: int
    session: int
    initiator: Literal["user", "bot"]
    modality: Literal["text", "audio"] | None = None
    message_id: str | None = None
    status: TurnStatus = "in_progress"
    assumed: str | None = None
    user_text: str | None = ""
    bot_text: str | None = ""
    spoken_text: str | None = ""
    spoken_exact: Literal["word", "sentence"] | None = None
    function_calls: tuple[ReportedFunctionCall, ...] = ()
    errors: tuple[ErrorData, ...] = ()
    metrics: tuple[PipecatMetricsData, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    timings: TurnTimings = attrs.field(factory=TurnTimings)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(number={self.number}, initiator={self.initiator!r}, status={self.status!r}, "
            f"user_text={quoted(self.user_text)}, bot_text={quoted(self.bot_text)})"
        )

    @property
    def is_open(self) -> bool:
        """Return whether the bot is still to answer, or is answering."""
        return self.status == "in_progress"

    @property
    def interrupted(self) -> bool:
        """Return whether the bot was interrupted."""
        return self.status == "interrupted"
