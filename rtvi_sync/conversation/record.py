"""The record of one turn of a conversation. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import attrs

from ..protocol.record import Record
from ..protocol.session_payloads import ErrorData
from ..protocol.text import quoted
from ..protocol.turn_payloads import PipecatMetricsData

TurnStatus: TypeAlias = Literal["in_progress", "complete", "interrupted", "failed"]
"""The state of a turn: the bot's answer is incomplete, complete, interrupted, or failed."""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ReportedFunctionCall(Record):
    """A function call of the bot's language model, as far as the bot reports it.

    A turn has room for a million characters of arguments, results, errors and metrics.

    Attributes:
        function_name: The function's name. None: not reported, or not yet.
        arguments: The arguments. None: not reported, not yet, or no room in the turn.
        result: The result. None: not reported, not yet, or no room in the turn.
        tool_call_id: The bot's id of the call. None: not reported.
        cancelled: True if the call ended without a result.
        started (seconds): Time of Python's monotonic clock at receipt. None: not yet.
        stopped (seconds): Time of Python's monotonic clock at receipt. None: not yet.
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
    """The times of a turn's events, in seconds of the client's monotonic clock, at receipt. None: not yet, or never.

    Attributes:
        user_started: The bot reported that the user started to speak. For typed text: when it was sent.
        user_stopped: The last audible sample was sent. For typed text: when it was sent.
        user_stopped_reported: The bot reported that the user had stopped speaking.
        transcribed: The last final transcript.
        acknowledged: The bot reported that it has the user's text, or the end of the user's speech.
        llm_started: Start of the answer's first run of the language model.
        first_token: First text of that run.
        first_audio: The first audible sample of the answer.
        bot_started_speaking: The bot's first report that it speaks.
        bot_stopped_speaking: The bot's last report that it has stopped.
        interrupted_at: The bot was interrupted.
        ended: The turn ended.
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
"""The times when the user started and stopped speaking. Infinity: not yet."""


def speech_of(timings: TurnTimings, *, is_speaking: bool = False) -> Speech:
    """Return when the user spoke in a turn, by the bot's reports.

    Args:
        timings: The timings of a spoken turn.
        is_speaking: True if the user has started to speak again.
    """
    ends = timings.user_stopped_reported, timings.acknowledged, timings.llm_started, timings.first_audio, timings.ended
    end = None if is_speaking else next((moment for moment in ends if moment is not None), None)
    return timings.user_started or 0.0, math.inf if end is None else end


@attrs.frozen(eq=False, repr=False)
class TimelineEntry(Record):
    """One event of a turn.

    Attributes:
        at (seconds): Time of Python's monotonic clock.
        who: "you", "bot", or "" for an event of neither.
        kind: The kind of event: "typed", "speaks", "silent", "acknowledged", "model runs", "calls", "returned",
            "error", ...
        text: The words, the call (`get_weather({"city": "Oslo"})`) or the result (`get_weather {"temperature": 12}`),
            at most 2000 characters. "" if there is nothing to quote.
    """

    at: float
    who: Literal["you", "bot", ""]
    kind: str
    text: str = ""


@attrs.frozen(kw_only=True, repr=False, eq=False)
class TurnRecord(Record):
    """The user's question and the bot's answer, or unprompted speech of the bot.

    The texts are None if no one knows them: the transport carries no messages, as by telephone.

    Attributes:
        number: Number of the turn, from 1 in each client.
        session: Number of the session in which the turn started, from 1.
        initiator: The side that started the turn.
        modality: "text": the user typed. "audio": the user spoke. None: the bot started the turn.
        message_id: Id of the typed question's message. None: the user spoke, or the bot started the turn.
        status: The state of the turn; see `TurnStatus`.
        assumed: Why the client stopped waiting, if the bot never reported the end: how long it waited, and for which
            part. None: the bot reported everything.
        user_text: The user's text, typed or transcribed, at most 100,000 characters.
        bot_text: The bot's text, written and spoken, at most 100,000 characters. If the transport carries no messages:
            the result of the transport's `transcribe`, or None without it.
        spoken_text: The spoken part of `bot_text`. If the answer was complete, the same as `bot_text`.
        spoken_exact: The unit by which the bot reports spoken text: "word", or "sentence". With sentences, an
            interrupted sentence is missing. None: the bot does not report it.
        function_calls: The calls of the answer, in the order of their starts, at most 100. Empty if the transport
            carries no messages.
        errors: The bot's error reports during the answer, at most 20.
        metrics: The bot's measurements during the answer, at most 50.
        timeline: The events of the turn, in order, at most 500.
        timings: The times of the events.
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
        """True if the bot has not answered yet, or is answering."""
        return self.status == "in_progress"

    @property
    def interrupted(self) -> bool:
        """True if the bot was interrupted."""
        return self.status == "interrupted"
