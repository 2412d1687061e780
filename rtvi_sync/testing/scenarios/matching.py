"""Matches an expectation with the events of a session. Pure.

This module never waits or asks a judge. A matcher yields its needs, an event or a verdict, and is resumed with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs

from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.text import one_line, quoted
from rtvi_sync.testing.scenarios.model import CALL_EVENTS, EventName, Expectation, ExpectedCall
from rtvi_sync.testing.scenarios.stream import MAX_TEXT, ScenarioEvent, ScenarioStream

Verdict: TypeAlias = Literal["passed", "failed", "not_judged", "unsupported"]
FailureKind: TypeAlias = Literal[
    "timeout",
    "text_mismatch",
    "text_present",
    "missing_function_call",
    "function_args_mismatch",
    "unexpected_event",
    "marker_mismatch",
    "marker_format",
    "judge_no",
    "judge_continue",
    "no_judge",
    "no_content",
    "judge_no_verdict",
    "send_after_timeout",
    "bot_ended",
    "connect_failed",
    "closed_before_ready",
    "handshake_timeout",
    "error",
    "out_of_range",
    "function_calls",
]
"""The kind of an expectation's failure, named like in Pipecat's results."""

#: Seconds of waiting for the rest of a reply that the judge refused, while the bot is silent.
JUDGE_GRACE: Final = 2.0
#: Seconds of waiting, after a call without a name, for one with a name, because the bot may withhold only some.
WITHHELD_GRACE: Final = 2.0

#: Seconds of waiting, after a response without text, for the error that explains it.
ERROR_GRACE: Final = 0.5

#: Events that may divide one reply into several.
REPLIES: Final = frozenset({"response", "llm_response", "tts_response"})
# Length limit for a text in a reason, in characters.
_SHOWN: Final = 300

# -- needs of a matcher -----------------------------------------------------------------------------------------------


class AwaitEvent(NamedTuple):
    """The need for more events. The matcher is resumed with the time, after a new event or at the given moment."""

    until: float


class AskJudge(NamedTuple):
    """The need for a verdict. The matcher is resumed with a `Judged`.

    Attributes:
        criterion: Condition to judge.
        answer: Words of the bot; ``name(json)`` for a call.
        call: Name and arguments of the call to judge; None for a reply.
    """

    criterion: str
    answer: str
    call: tuple[str, Mapping[str, Any]] | None = None


class Judged(NamedTuple):
    """A verdict.

    Attributes:
        verdict: "yes", "no", "continue"; "error" if the judge failed.
        reason: Reason, "" if unknown.
        at: Time of the verdict, in monotonic seconds.
    """

    verdict: Literal["yes", "no", "continue", "error"]
    reason: str
    at: float


@attrs.frozen(kw_only=True, eq=False, repr=False)
class Match(Record):
    """The outcome of an expectation.

    Attributes:
        verdict: "not_judged": everything but the criterion holds, and there is no judge. "unsupported": the bot's door
            doesn't report the event.
        kind, reason: Cause of the failure; None and "" if it passed.
        matched: Short form of the matched text or function names; "" if the event has none.
        ends_turn: True if the turn's other expectations are skipped.
    """

    verdict: Verdict
    kind: FailureKind | None = None
    reason: str = ""
    matched: str = ""
    ends_turn: bool = False


Steps: TypeAlias = Generator[AwaitEvent | AskJudge, Any, Match]
_Found: TypeAlias = Generator[AwaitEvent | AskJudge, Any, "ScenarioEvent | Literal['timeout', 'bot_ended']"]


def failed(kind: FailureKind, reason: str, *, ends_turn: bool = False) -> Match:
    """Return a failed outcome."""
    return Match(verdict="failed", kind=kind, reason=reason, ends_turn=ends_turn)


class ExpectationMatcher:
    """Resolves expectations, one at a time, by the events of a stream.

    Args:
        stream: Stream of the session.
        default_ms: Limit in milliseconds of an expectation without `within_ms`.
        has_judge: True if criteria are judged.
        withholds_calls: True if a call without name or arguments doesn't fail an expectation, because the bot could not
            be asked for them.
    """

    def __init__(
        self, stream: ScenarioStream, *, default_ms: int, has_judge: bool, withholds_calls: bool = False
    ) -> None:
        self._stream = stream
        self._default_ms = default_ms
        self._has_judge = has_judge
        self._withholds_calls = withholds_calls
        # Time of the latest match: the rest of a matched reply is not a new reply.
        self._matched_at = -math.inf

    def match(self, expectation: Expectation, sent_at: float, number: int) -> Steps:
        """Wait for the event of an expectation.

        Args:
            expectation: An expectation that `answer_now()` doesn't handle.
            sent_at: Time of the turn's send, in monotonic seconds; the limit counts from it.
            number: Number of the expectation in its turn, from 0.
        """
        self._stream.begin_expectation(number)
        budget = expectation.within_ms or self._default_ms
        deadline = sent_at + budget / 1000
        if expectation.absent:
            return self._absent(expectation, deadline, budget)
        since = 0 if expectation.check_from == "turn_start" else self._stream.position
        if expectation.event in CALL_EVENTS:
            return self._calls(expectation, deadline, since)
        adds_up = expectation.text_contains is not None or expectation.eval is not None
        if expectation.event == "user_transcription":
            adds_up = expectation.text_contains is not None and expectation.eval is None
        if adds_up and (expectation.event in REPLIES or expectation.event == "user_transcription"):
            return self._added_up(expectation, deadline, budget, since)
        return self._one(expectation, deadline, budget, since)

    def answer_now(self, expectation: Expectation, why: str) -> Steps:
        """Resolve an expectation by the events so far, for an event that the bot may not send through its door.

        Args:
            expectation: Expectation of an event, not of its absence.
            why: Reason why a missing event proves nothing.
        """
        found = self._stream.take_anywhere(lambda event: event.event == expectation.event)
        if found is None:
            return Match(verdict="unsupported", reason=why)
        return (yield from self._checked(found, expectation))

    def _next(
        self,
        event: EventName,
        deadline: float,
        since: int | None,
        fits: Callable[[ScenarioEvent], bool],
        patience: Callable[[], float] = lambda: math.inf,
    ) -> _Found:
        """Return the next matching event of a type, or the reason for its absence.

        Args:
            event: Type of the event.
            deadline: Time limit.
            since: Position from which skipped events count; None to take only waiting events.
            fits: Further condition.
            patience: Function that returns an earlier time limit, given the skipped events.
        """

        def wanted(candidate: ScenarioEvent) -> bool:
            return candidate.event == event and fits(candidate)

        stream = self._stream
        if since is not None and (found := stream.look_back(since, wanted)) is not None:
            return found
        now = -math.inf
        while True:
            if (found := stream.take(deadline, wanted)) is not None:
                return found
            until = min(deadline, patience())
            if stream.is_late(deadline) or now >= until:
                return "timeout"
            if stream.has_ended:
                return "bot_ended"
            now = yield AwaitEvent(until)

    # -- kinds of expectations ----------------------------------------------------------------------------------------

    def _one(self, expectation: Expectation, deadline: float, budget: int, since: int) -> Steps:
        stream = self._stream
        while True:
            found = yield from self._next(expectation.event, deadline, since, lambda each: not stream.is_void(each))
            if isinstance(found, str):
                return self._missing(expectation, budget, found)
            if found.event == "llm_response" and not found.text.strip():
                yield from self._await_error(found.at + ERROR_GRACE)
            if not stream.is_void(found):
                return (yield from self._checked(found, expectation))
            stream.pass_over(found)

    def _await_error(self, until: float) -> Generator[AwaitEvent, float, None]:
        """Wait until the bot has reported an error in this turn, or until a moment."""
        now = -math.inf
        while not self._stream.error and not self._stream.has_ended and now < until:
            now = yield AwaitEvent(until)

    def _checked(self, found: ScenarioEvent, expectation: Expectation) -> Steps:
        failure = _payload_failure(found, expectation)
        if failure is not None:
            return failure
        if expectation.eval is not None:
            if not found.text:
                return failed("no_content", f"{expectation.event} has no text that could be judged")
            if not self._has_judge:
                self._matched_at = found.at
                return _not_judged(found.text)
            judged: Judged = yield AskJudge(expectation.eval, found.text)
            if judged.verdict != "yes":
                return _refused(judged, _quoted(found.text))
            self._matched_at = judged.at
        self._matched_at = max(self._matched_at, found.at)
        return Match(verdict="passed", matched=found.describe())

    def _added_up(self, expectation: Expectation, deadline: float, budget: int, since: int) -> Steps:
        """Add up the events of a reply until they match together."""
        text = reason = ""
        found = yield from self._next(expectation.event, deadline, since, _any)
        while not isinstance(found, str):
            text = (text + found.text)[:MAX_TEXT]
            checked = yield from self._check_sum(text, found, expectation)
            if isinstance(checked, Match):
                return checked
            reason, until = checked.reason, deadline
            is_refused = checked.verdict == "no"
            if is_refused and not self._stream.is_bot_speaking:
                until = min(deadline, checked.at + JUDGE_GRACE)
            found = yield from self._next(expectation.event, until, since, _any)
            if is_refused and isinstance(found, str):
                return failed("judge_no", reason)
            text += " "
        if not text or found == "bot_ended":
            return self._missing(expectation, budget, found)
        kind: FailureKind = "judge_continue" if expectation.eval is not None else "text_mismatch"
        return failed(kind, f"not satisfied within {budget} ms: {reason}")

    def _check_sum(
        self, text: str, last: ScenarioEvent, expectation: Expectation
    ) -> Generator[AskJudge, Judged, Match | Judged]:
        """Return the outcome for the sum so far; a verdict if further events may complete it."""
        excluded = _excluded(text, expectation)
        if excluded is not None:
            return excluded
        part = expectation.text_contains
        if part is not None and not has_part(text, part):
            return Judged("continue", f"{_quoted(text)} does not contain {_quoted(part)}", last.at)
        if expectation.eval is None:
            self._matched_at = last.at
            return Match(verdict="passed", matched=text)
        if not text.strip():
            return Judged("continue", "the response has no text yet", last.at)
        if not self._has_judge:
            self._matched_at = last.at
            return _not_judged(text)
        judged = yield AskJudge(expectation.eval, text.strip())
        if judged.verdict == "yes":
            self._matched_at = judged.at
            return Match(verdict="passed", matched=text)
        what = _quoted(text)
        return _refused(judged, what) if judged.verdict == "error" else judged._replace(reason=_said(judged, what))

    def _missing(self, expectation: Expectation, budget: int, ended_by: str) -> Match:
        event = expectation.event
        if ended_by == "bot_ended":
            reason = f"{self._stream.ended_by} before a matching {event} came"
            return failed("bot_ended", reason, ends_turn=True)
        why = self._stream.why_missing(event, lambda found: _payload_failure(found, expectation) is None)
        reason = f"no matching {event} came within {budget} ms{why}"
        return failed("timeout", reason, ends_turn=True)

    def _absent(self, expectation: Expectation, deadline: float, budget: int) -> Steps:
        while True:
            found = yield from self._next(expectation.event, deadline, None, _any)
            if isinstance(found, str):
                until = f"before {self._stream.ended_by}" if found == "bot_ended" else f"for {budget} ms"
                return Match(verdict="passed", matched=f"no {expectation.event} {until}")
            if expectation.event == "response" and not self._is_new_reply:
                continue
            return failed(
                "unexpected_event",
                f"no {expectation.event} within {budget} ms, but one came: {_quoted(found.describe())}",
            )

    @property
    def _is_new_reply(self) -> bool:
        latest = self._stream.latest
        began = max(latest.get("llm_started", -math.inf), latest.get("bot_started_speaking", -math.inf))
        return began > self._matched_at

    def _calls(self, expectation: Expectation, deadline: float, since: int) -> Steps:
        matched: list[str] = []
        for call in expectation.calls:
            found = yield from self._call(expectation.event, call, deadline, since)
            if found == "bot_ended":
                return self._missing(expectation, 0, "bot_ended")
            if isinstance(found, str):
                return self._call_failure(expectation, call, since, matched)
            if expectation.eval is not None and self._has_judge:
                failure = yield from self._judged_call(found, expectation.eval)
                if failure is not None:
                    return failure
            matched.append(str(found.name))
            self._matched_at = max(self._matched_at, found.at)
        names = ", ".join(matched) or "function call"
        if expectation.eval is not None and not self._has_judge:
            return _not_judged(names)
        return Match(verdict="passed", matched=names)

    def _call(self, event: EventName, call: ExpectedCall, deadline: float, since: int) -> _Found:
        """Return the next event of a call, or the reason for its absence."""

        def fits(candidate: ScenarioEvent) -> bool:
            return is_call(candidate, call)

        def patience() -> float:
            withheld = (each.at for each in self._stream.passed_over(since) if _is_withheld(each, event, call))
            return next(withheld, math.inf) + WITHHELD_GRACE  # a later call may have its name

        if not self._withholds_calls:
            return (yield from self._next(event, deadline, since, fits))
        return (yield from self._next(event, deadline, since, fits, patience))

    def _judged_call(self, found: ScenarioEvent, criterion: str) -> Generator[AskJudge, Judged, Match | None]:
        name, args = found.name or "?", found.args or {}
        judged = yield AskJudge(criterion, signature(name, args), (name, args))
        if judged.verdict == "yes":
            self._matched_at = judged.at
            return None
        return _refused(judged, one_line(found.describe(), _SHOWN))

    def _call_failure(self, expectation: Expectation, call: ExpectedCall, since: int, matched: list[str]) -> Match:
        others = [each for each in self._stream.passed_over(since) if each.event == expectation.event]
        withheld = [each for each in others if self._withholds_calls and _is_withheld(each, expectation.event, call)]
        if withheld:
            self._stream.give_back(withheld[0])  # later events stay available for other expectations
            what = "names" if any(each.name is None for each in withheld) else "arguments"
            return Match(
                verdict="unsupported",
                reason=f"the bot withholds the {what} of calls: set function_call_report_level in the parameters of "
                "its RTVI observer, or use the eval route (--transport eval)",
            )
        near = [each for each in others if call.name is None or each.name == call.name]
        if call.args and near:
            saw = ", ".join(signature(each.name or "?", each.args or {}) for each in near)
            wanted = signature(call.name or "any function", call.args)
            return failed("function_args_mismatch", f"no call was {wanted}, but {one_line(saw, _SHOWN)}")
        missing, seen = call.name or "any function", ", ".join(matched) or "none"
        return failed("missing_function_call", f"no call of {missing} came (matched: {one_line(seen, _SHOWN)})")


# -- checks -----------------------------------------------------------------------------------------------------------


def has_part(text: str, part: str) -> bool:
    """Return whether a text contains a part. Any run of blanks counts as one."""
    return " ".join(part.split()) in " ".join(text.split())


def is_call(event: ScenarioEvent, call: ExpectedCall) -> bool:
    """Return whether an event is an expected call."""
    args = event.args or {}
    return call.name in (None, event.name) and all(args.get(name) == value for name, value in (call.args or {}).items())


def _is_withheld(event: ScenarioEvent, kind: EventName, call: ExpectedCall) -> bool:
    """Return whether an event may be an expected call with withheld details."""
    return event.event == kind and (
        (call.name is not None and event.name is None)
        or (bool(call.args) and event.args is None and call.name in (None, event.name))
    )


def _any(_: ScenarioEvent) -> bool:
    return True


def _quoted(text: str) -> str:
    return quoted(text.strip(), _SHOWN)


def signature(name: str, args: Mapping[str, Any]) -> str:
    """Return a call in the judge's format: ``name(json)``."""
    return f"{name}({json.dumps(dict(args), ensure_ascii=False, default=str)})"


def _not_judged(matched: str) -> Match:
    return Match(verdict="not_judged", reason="its criterion needs a judge, and there is none", matched=matched)


def _said(judged: Judged, what: str) -> str:
    because = f": {one_line(judged.reason, _SHOWN)}" if judged.reason else ""
    return f"the judge said {judged.verdict} to {what}{because}"


def _refused(judged: Judged, what: str) -> Match:
    if judged.verdict == "error":
        return failed("error", f"the judge has failed: {one_line(judged.reason, _SHOWN)}")
    return failed("judge_no", _said(judged, what))


def _excluded(text: str, expectation: Expectation) -> Match | None:
    part = expectation.text_excludes
    if part is None or not has_part(text, part):
        return None
    return failed("text_present", f"{_quoted(text)} contains {_quoted(part)}")


def _payload_failure(event: ScenarioEvent, expectation: Expectation) -> Match | None:
    """Return how the event's payload differs from the expectation; None if it matches."""
    part = expectation.text_contains
    if part is not None and not has_part(event.text, part):
        return failed("text_mismatch", f"{_quoted(event.text)} does not contain {_quoted(part)}")
    excluded = _excluded(event.text, expectation)
    if excluded is not None:
        return excluded
    if expectation.marker is not None:
        wanted = ("short", "long") if expectation.marker == "incomplete" else (expectation.marker,)
        if event.marker not in wanted:
            is_what = event.marker or "of no known kind"
            return failed("marker_mismatch", f"the marker {_quoted(event.text)} is {is_what}, not {expectation.marker}")
    problem = _marker_problem(event, expectation)
    return failed("marker_format", problem) if problem is not None else None


def _marker_problem(event: ScenarioEvent, expectation: Expectation) -> str | None:
    """Return the fault in the form of the text with the marker; None if there is none."""
    if (expectation.marker_first, expectation.markers, expectation.text_after) == (None, None, None):
        return None
    raw, shown = event.raw, _quoted(event.raw[:80])
    known = [marker for marker in event.markers if marker and marker in raw]
    count = sum(raw.count(marker) for marker in known)
    first_at, first = min(((raw.find(marker), marker) for marker in known), default=(-1, None))
    if expectation.markers is not None and count != expectation.markers:
        return f"the text has {count} markers, not {expectation.markers}: {shown}"
    if expectation.marker_first is not None:
        is_first = first is not None and not raw[:first_at].strip()
        if is_first != expectation.marker_first:
            return f"the text {'begins' if is_first else 'does not begin'} with a marker: {shown}"
    if expectation.text_after is not None:
        if first is None:
            return f"the text has no marker, behind which text could be: {shown}"
        has_text = bool(raw[first_at + len(first) :].strip())
        if has_text != expectation.text_after:
            return f"the text has {'text' if has_text else 'nothing'} behind the marker: {shown}"
    return None
