"""A session whose events are all known beforehand, for tests of the matching of expectations."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

from rtvi_sync import RTVIEvent, RTVIMessage
from rtvi_sync import messages as payloads
from rtvi_sync.events import Event
from rtvi_sync.testing.scenarios.matching import AskJudge, AwaitEvent, ExpectationMatcher, Judged, Match, Steps
from rtvi_sync.testing.scenarios.model import Expectation, ExpectedCall
from rtvi_sync.testing.scenarios.stream import ScenarioStream

TIMEOUT_MS = 10_000


def event(at: float, type_: RTVIEvent, data: Any = None) -> Event[Any]:
    return Event(type=type_, data=data, received_at=at)


def written(at: float, *tokens: str) -> list[Event[Any]]:
    """Return a response of the model, which starts and ends at a moment."""
    text = [event(at, RTVIEvent.BOT_LLM_TEXT, payloads.BotLLMTextData(text=token)) for token in tokens]
    return [event(at, RTVIEvent.BOT_LLM_STARTED), *text, event(at, RTVIEvent.BOT_LLM_STOPPED)]


def called(at: float, name: str | None = None, arguments: dict[str, Any] | None = None) -> Event[Any]:
    data = payloads.LLMFunctionCallInProgressData(tool_call_id="1", function_name=name, arguments=arguments)
    return event(at, RTVIEvent.LLM_FUNCTION_CALL_IN_PROGRESS, data)


def stopped(at: float, name: str | None = None, *, cancelled: bool = False) -> Event[Any]:
    data = payloads.LLMFunctionCallStoppedData(tool_call_id="1", function_name=name, cancelled=cancelled)
    return event(at, RTVIEvent.LLM_FUNCTION_CALL_STOPPED, data)


def heard(at: float, text: str, *, kind: str = "transcription", final: bool = True) -> Event[Any]:
    return event(at, RTVIEvent.USER_INPUT, payloads.UserInputData(text=text, input_type=kind, final=final))


def marked(at: float, raw: str, kind: str | None = "complete", marker: str = "✓") -> list[Event[Any]]:
    data = payloads.BotLLMMarkerData(text=marker, kind=kind, raw=raw, markers=("✓", "○", "◐"))
    begun = event(at, RTVIEvent.BOT_LLM_STARTED)
    return [begun, event(at, RTVIEvent.BOT_LLM_MARKER, data), event(at, RTVIEvent.BOT_LLM_STOPPED)]


def failed(at: float, text: str) -> Event[Any]:
    return event(at, RTVIEvent.ERROR, payloads.ErrorData(message=text))


def image(at: float) -> Event[Any]:
    return event(at, RTVIEvent.UNKNOWN_MESSAGE, RTVIMessage("eval-bot-image", {"width": 2, "height": 2}))


def expected(name: str, **keys: Any) -> Expectation:
    """Return an expectation; `calls` has names, and pairs of a name and arguments."""
    calls = [each if isinstance(each, tuple) else (each, None) for each in keys.pop("calls", [])]
    if name in ("function_call", "function_call_stopped") and not calls and not keys.get("absent"):
        calls = [(None, None)]
    return Expectation(event=name, calls=tuple(ExpectedCall(*call) for call in calls), **keys)  # type: ignore[arg-type]


class Rig:
    """A session whose clock stands still until a call waits.

    Args:
        comes: Single events and lists of them, in order of arrival.
        ends_at: Time at which the bot ends the session, in seconds; infinite: never.
        verdicts: Verdicts of the judge, one after the other: a verdict, or a pair of it and its duration in seconds.
            None: no judge.
    """

    def __init__(
        self,
        *comes: Event[Any] | Iterable[Event[Any]],
        ends_at: float = math.inf,
        verdicts: Iterable[str | tuple[str, float]] | None = None,
        speaks: bool = False,
        withholds: bool = False,
        has_user_input: bool = True,
        tells_model: bool = True,
    ) -> None:
        self._coming = deque(each for group in comes for each in ([group] if isinstance(group, Event) else group))
        self._ends_at = ends_at
        self._verdicts = deque(verdicts or ())
        self.now = 0.0
        #: The requests to the judge.
        self.asked: list[AskJudge] = []
        self.stream = ScenarioStream(bot_speaks=speaks, has_user_input=has_user_input, tells_model=tells_model)
        self._matcher = ExpectationMatcher(
            self.stream, default_ms=TIMEOUT_MS, has_judge=verdicts is not None, withholds_calls=withholds
        )
        self._sent_at = 0.0

    def wait(self, until: float) -> None:
        """Let the time pass, and deliver all events of that time."""
        while self._coming and self._coming[0].received_at <= until:
            self.now = self._coming[0].received_at
            self.stream.feed(self._coming.popleft())
        self.now = max(self.now, until)
        if self._ends_at <= self.now:
            self.stream.end()

    def send(self) -> None:
        """Start a turn with words of the user."""
        self.stream.begin_turn()
        self.stream.drop()
        self.stream.sent(self.now)
        self._sent_at = self.now

    def observe(self) -> None:
        """Start a turn without any words."""
        self.stream.begin_turn()
        self._sent_at = self.now

    def match(self, *expectations: Expectation) -> list[Match]:
        """Return the outcome of expectations, until one ends the turn."""
        matches = []
        for number, expectation in enumerate(expectations):
            matches.append(self.run(self._matcher.match(expectation, self._sent_at, number)))
            if matches[-1].ends_turn:
                break
        return matches

    def answer_now(self, expectation: Expectation) -> Match:
        """Return the outcome of an expectation from the events so far."""
        return self.run(self._matcher.answer_now(expectation, "it does not tell"))

    def run(self, steps: Steps) -> Match:
        """Give a matcher its inputs."""
        reply: object = None
        while True:
            try:
                need = steps.send(reply)
            except StopIteration as done:
                match: Match = done.value
                return match
            reply = self._wait_for_one(need) if isinstance(need, AwaitEvent) else self._judge(need)

    def _wait_for_one(self, need: AwaitEvent) -> float:
        at = self._coming[0].received_at if self._coming else math.inf
        if min(at, self._ends_at) > need.until:
            self.now = max(self.now, need.until)
        elif at <= self._ends_at:
            self.now = max(self.now, at)
            self.stream.feed(self._coming.popleft())
        else:
            self.now = max(self.now, self._ends_at)
            self.stream.end()
        return self.now

    def _judge(self, need: AskJudge) -> Judged:
        self.asked.append(need)
        answer = self._verdicts.popleft()
        verdict, seconds = (answer, 0.0) if isinstance(answer, str) else answer
        self.wait(self.now + seconds)
        return Judged(verdict, "so it is", self.now)  # type: ignore[arg-type]


def kinds(matches: Iterable[Match]) -> list[str]:
    """Return the verdicts, and of failures their kinds in their place."""
    return [match.kind or match.verdict for match in matches]
