"""A turn of a conversation while it may still change. Pure."""

from __future__ import annotations

import json
from typing import Any, Literal

import attrs

from .answer import Answer
from .service_payloads import PipecatMetricsData
from .session_payloads import ErrorData
from .spoken_text import MAX_CHARACTERS
from .turn_record import TimelineEntry, TurnRecord, TurnStatus, TurnTimings

_MAX_TIMELINE = 500
_MAX_ENTRY = 2000  # characters
# The timings that belong to the answer.
_OF_ANSWER = ("llm_started", "first_token", "bot_started_speaking", "bot_stopped_speaking")


def shown_in_timeline(value: Any) -> str:
    """Return the arguments or the result of a function call as text: JSON, if it can be written so."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # the sender is told when the message is written
        return repr(value)


@attrs.define(eq=False)
class OpenTurn:
    """A turn that may still change."""

    number: int
    session: int
    modality: Literal["text", "audio"] | None
    answer: Answer
    message_id: str | None = None  # of a typed text
    status: TurnStatus = "in_progress"
    assumed: str | None = None
    finals: list[str] = attrs.field(factory=list)
    partial: str = ""
    told_text: str = ""  # by user-llm-text
    is_file: bool = False  # no bot acknowledges one by user-input
    told_input: bool = False
    told_llm_text: bool = False
    is_speaking: bool = False  # the user
    is_announced: bool = False  # the bot was interrupted since it was asked, as typed texts do from 2.0 on
    is_late: bool = False  # of the bot: it began after the interruption by a text that is not acknowledged yet
    is_firm: bool = False  # the answer began when the bot had the question, and by a run of its model
    last_sign: float = 0.0
    timings: TurnTimings = attrs.field(factory=TurnTimings)
    errors: list[ErrorData] = attrs.field(factory=list)
    metrics: list[PipecatMetricsData] = attrs.field(factory=list)
    timeline: list[TimelineEntry] = attrs.field(factory=list)

    @property
    def is_over(self) -> bool:
        """Tell whether nothing of it changes any more."""
        return self.status != "in_progress"

    @property
    def is_doubtful(self) -> bool:
        """Tell whether what was taken for its answer may be none."""
        return self.modality is not None and not self.is_firm

    @property
    def user_text(self) -> str:
        """Return what the user has typed or said, as far as it is known."""
        return " ".join(filter(None, (*self.finals, self.partial))) or self.told_text

    def hear(self, text: str, *, final: bool) -> None:
        """Note the user's words; those that are not final replace each other."""
        room = MAX_CHARACTERS - sum(len(each) + 1 for each in self.finals)  # with the blanks between them
        text = text.strip()[: max(0, room)]
        if final and room > 0:
            self.finals.append(text)
        self.partial = "" if final else text

    def time(self, **moments: float | None) -> None:
        """Note when something came; None: it has not, after all."""
        self.timings = attrs.evolve(self.timings, **moments)

    def time_first(self, **moments: float) -> None:
        """Note when something came for the first time."""
        new = {name: at for name, at in moments.items() if getattr(self.timings, name) is None}
        if new:  # seldom: this is called for each word
            self.time(**new)

    def note(self, at: float, who: Literal["you", "bot", ""], kind: str, text: str = "") -> None:
        """Append to the timeline."""
        if len(self.timeline) < _MAX_TIMELINE:
            self.timeline.append(TimelineEntry(at, who, kind, text[:_MAX_ENTRY]))

    def note_end_of_call(
        self, at: float, who: Literal["you", "bot"], call_id: str, result: Any, *, cancelled: bool = False
    ) -> None:
        """Append the end of a function call to the timeline."""
        shown = "" if result is None else f" {shown_in_timeline(result)}"
        self.note(at, who, "cancelled" if cancelled else "returned", self.answer.name_of(call_id) + shown)

    def quote_speech(self) -> None:
        """Note in the timeline what the bot has said since it has begun to speak."""
        for index in reversed(range(len(self.timeline))):
            entry = self.timeline[index]
            if (entry.who, entry.kind) == ("bot", "speaks"):
                self.timeline[index] = TimelineEntry(entry.at, "bot", "speaks", self.answer.last_speech[:_MAX_ENTRY])
                return

    def give_answer_to(self, other: OpenTurn) -> None:
        """Let what the bot has done be what it has done for another turn, which has nothing yet."""
        other.answer, self.answer = self.answer, other.answer
        other.errors, self.errors = self.errors, []
        other.metrics, self.metrics = self.metrics, []
        other.timings = attrs.evolve(other.timings, **{name: getattr(self.timings, name) for name in _OF_ANSWER})
        self.timings = attrs.evolve(self.timings, **dict.fromkeys(_OF_ANSWER))
        other.timeline = [entry for entry in self.timeline if entry.who == "bot"]
        self.timeline = [entry for entry in self.timeline if entry.who != "bot"]

    def record(self) -> TurnRecord:
        """Return what is known of it now."""
        answer, text = self.answer, self.answer.text
        self.quote_speech()
        return TurnRecord(
            number=self.number,
            session=self.session,
            initiator="user" if self.modality is not None else "bot",
            modality=self.modality,
            message_id=self.message_id,
            status=self.status,
            assumed=self.assumed,
            user_text=self.user_text,
            bot_text=text,
            spoken_text=text if self.status == "complete" else answer.spoken_text,
            spoken_exact=answer.spoken_exact,
            function_calls=answer.calls,
            errors=(*self.errors,),
            metrics=(*self.metrics,),
            timeline=(*self.timeline,),
            timings=self.timings,
        )
