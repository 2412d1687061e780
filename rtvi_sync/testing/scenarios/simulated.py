"""A simulated conversation: a function plays the caller, and the conversation is judged and measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from rtvi_sync.client.client import RTVIClient
from rtvi_sync.concurrency.clock import monotonic
from rtvi_sync.errors import DeviceError, RequestTimeoutError, RTVIError, UnsupportedFeatureError
from rtvi_sync.media import BytesSource
from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.text import one_line
from rtvi_sync.protocol.validation import takes
from rtvi_sync.testing.scenarios.doors import Door
from rtvi_sync.testing.scenarios.hooks import HookError, Hooks, ask_judge, call_hook, speech_of
from rtvi_sync.testing.scenarios.matching import AskJudge, Judged, signature
from rtvi_sync.testing.scenarios.model import ExpectedCall, Scenario, Simulation, SimulationMetric
from rtvi_sync.testing.scenarios.report import MetricResult, ScenarioFailure
from rtvi_sync.testing.simulation import Talk, simulate

if TYPE_CHECKING:
    from rtvi_sync import ReportedFunctionCall, Turn

_SUCCESS: Final = "success"
_NO_JUDGE: Final = "its criterion needs a judge, and there is none"
_GOAL: Final = (
    "In the whole conversation, not only in the latest reply, this is so (lines that begin with 'call:' are functions "
    "that the bot has called): {success}"
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class SimulatedTalk(Record):
    """A simulated conversation and its outcome.

    Attributes:
        metrics: Outcomes of the metrics, the goal first.
        lines: Lines as pairs of speaker ("user" or "bot") and text.
        failure: Why it was not completed; None if it was.
        reason: Why it could not run at all; "" if it did.
    """

    metrics: Sequence[MetricResult]
    lines: Sequence[tuple[str, str]]
    failure: ScenarioFailure | None = None
    reason: str = ""


def _judge_error(name: str, judged: Judged) -> MetricResult:
    return MetricResult(name=name, verdict="failed", kind="error", reason=f"the judge has failed: {judged.reason}")


class SimulatedConversation:
    """A conversation between a persona and a bot. One thread uses it.

    Args:
        client: Connected client.
        scenario: Simulated scenario.
        door: Door to the bot.
        hooks: Hooks of the run, with `next_line`.
    """

    def __init__(self, client: RTVIClient, scenario: Scenario, door: Door, hooks: Hooks) -> None:
        assert scenario.simulation is not None, "it is a simulated one"
        self._client = client
        self._simulation: Simulation = scenario.simulation
        self._user_speaks = scenario.user.modality == "audio"
        self._bot_speaks = scenario.judge.modality == "audio"
        self._door = door
        self._hooks = hooks
        self._turns: tuple[Turn, ...] = ()

    def run(self) -> SimulatedTalk:
        """Hold the conversation, and judge it."""
        began = monotonic()
        until = began + self._simulation.max_duration_s
        failure = None
        try:
            talk = simulate(
                self._client,
                self._next_line,
                self._simulation.max_turns,
                until=lambda _: monotonic() >= until,
                timeout=self._simulation.max_silence_s,
            )
        except RequestTimeoutError as error:  # the bot was silent for too long: the talk so far is judged
            last = error.turn
            turns = [*self._turns, *([last] if last is not None and last not in self._turns else [])]
            talk = Talk(turns=tuple(turns), ended_by="bot")
        except HookError as error:
            talk = Talk(turns=self._turns, ended_by="next_line")
            failure = ScenarioFailure(-1, -1, f"<{error.hook}>", "error", str(error))
        except (TypeError, ValueError) as error:  # the caller returned an unusable line
            talk = Talk(turns=self._turns, ended_by="next_line")
            failure = ScenarioFailure(-1, -1, "<next_line>", "error", str(error))
        except UnsupportedFeatureError as error:
            return SimulatedTalk(metrics=(), lines=(), reason=str(error))
        except (RTVIError, DeviceError) as error:
            talk = Talk(turns=self._turns, ended_by="bot")
            failure = ScenarioFailure(-1, -1, "<session>", "error", str(error))
        seconds = monotonic() - began
        if failure is not None:
            return SimulatedTalk(metrics=(), lines=talk.lines, failure=failure)
        metrics = [self._goal(talk), *(self._measured(each, talk, seconds) for each in self._simulation.metrics)]
        return SimulatedTalk(metrics=metrics, lines=talk.lines)

    def _next_line(self, turns: tuple[Turn, ...]) -> Any:
        self._turns = turns
        next_line = self._hooks.next_line
        assert next_line is not None, "the door requires it"
        given = (turns, self._simulation) if takes(next_line, turns, None) else (turns,)
        line = call_hook("next_line", next_line, *given)
        if not (isinstance(line, str) and line and self._user_speaks):
            return line
        tts = self._hooks.tts
        assert tts is not None, "the door requires it"
        return call_hook("tts", lambda: BytesSource(*speech_of(tts(line))))

    # -- judged -------------------------------------------------------------------------------------------------------

    def _goal(self, talk: Talk) -> MetricResult:
        if (gap := self._word_gap(_SUCCESS)) is not None:
            return gap
        if not talk.lines:
            return MetricResult(name=_SUCCESS, verdict="failed", kind="no_content", reason="nothing was said")
        if self._hooks.judge is None:
            return MetricResult(name=_SUCCESS, verdict="not_judged", reason=_NO_JUDGE)
        need = AskJudge(_GOAL.format(success=self._simulation.success), _transcript(talk))
        judged = ask_judge(self._hooks.judge, need, talk.lines)
        if judged.verdict == "yes":
            return MetricResult(name=_SUCCESS, verdict="passed", reason=judged.reason)
        if judged.verdict == "error":
            return _judge_error(_SUCCESS, judged)
        reason = judged.reason or "the goal is not met"
        return MetricResult(name=_SUCCESS, verdict="failed", kind="judge_no", reason=reason)

    def _word_gap(self, name: str) -> MetricResult | None:
        """Return the outcome of a metric of words if the door brings no words; None if it does."""
        if self._door.carries_messages:
            return None
        why = f"a call by {self._door.name} brings no words: use the eval route (--transport eval)"
        return MetricResult(name=name, verdict="unsupported", reason=why)

    def _score(self, metric: SimulationMetric, talk: Talk) -> MetricResult:
        if (gap := self._word_gap(metric.name)) is not None:
            return gap
        if self._hooks.judge is None:
            return MetricResult(name=metric.name, verdict="not_judged", reason=_NO_JUDGE)
        score, reasons, asked = 0, [], 0
        for number, (speaker, text) in enumerate(talk.lines):
            if speaker != "bot":
                continue
            asked += 1
            judged = ask_judge(self._hooks.judge, AskJudge(metric.criterion or "", text), talk.lines[:number])
            if judged.verdict == "error":
                return _judge_error(metric.name, judged)
            score += judged.verdict == "yes"
            if judged.verdict != "yes":
                reasons.append(f"reply {asked}: {judged.reason or judged.verdict}")
        if not asked:
            return MetricResult(name=metric.name, verdict="passed", reason="no reply to judge")
        share, least = score / asked, metric.min_score
        is_met = least is None or share >= least
        return MetricResult(
            name=metric.name,
            verdict="passed" if is_met else "failed",
            value=round(share, 3),
            kind=None if is_met else "judge_no",
            reason=one_line("; ".join(reasons)),
        )

    # -- measured -----------------------------------------------------------------------------------------------------

    def _measured(self, metric: SimulationMetric, talk: Talk, seconds: float) -> MetricResult:
        if metric.measure is None:
            return self._score(metric, talk)
        if metric.measure == "function_calls":
            return self._calls(metric, talk)
        if metric.measure == "words" and (gap := self._word_gap(metric.name)) is not None:
            return gap
        values: dict[str, Callable[[], float | None]] = {
            "turns": lambda: sum(turn.initiator == "user" for turn in talk.turns),
            "duration": lambda: round(seconds, 3),
            "words": lambda: max((len(text.split()) for who, text in talk.lines if who == "bot"), default=None),
            "latency": lambda: max(filter(None, map(self._latency, talk.turns)), default=None),
        }
        value = values[metric.measure]()
        low, high = metric.min_value, metric.max_value
        if value is None:
            return MetricResult(name=metric.name, verdict="passed", reason="there was no reply to measure")
        if (low is None or value >= low) and (high is None or value <= high):
            return MetricResult(name=metric.name, verdict="passed", value=value)
        bounds = [f"{word} {bound:g}" for word, bound in (("at least", low), ("at most", high)) if bound is not None]
        reason = f"{value:g}, not {' and '.join(bounds)}"
        return MetricResult(name=metric.name, verdict="failed", value=value, kind="out_of_range", reason=reason)

    def _latency(self, turn: Turn) -> float | None:
        return turn.time_to_first_audio if self._bot_speaks else turn.time_to_first_token

    def _calls(self, metric: SimulationMetric, talk: Talk) -> MetricResult:
        made = [call for turn in talk.turns for call in turn.function_calls if not call.cancelled]
        if not self._door.carries_messages or any(call.function_name is None for call in made):
            why = "the bot does not tell its calls here: use the eval route (--transport eval)"
            return MetricResult(name=metric.name, verdict="unsupported", reason=why)
        wanted = metric.calls or ()
        missing = [each for each in wanted if not any(_is_made(each, call) for call in made)]
        others = [call for call in made if not any(_is_made(each, call) for each in wanted)]
        if not missing and not others:
            return MetricResult(name=metric.name, verdict="passed", value=float(len(made)))
        told = [f"no call of {each.name}" for each in missing] + [f"a call of {call.function_name}" for call in others]
        return MetricResult(
            name=metric.name, verdict="failed", value=float(len(made)), kind="function_calls", reason=", ".join(told)
        )


def _transcript(talk: Talk) -> str:
    """Return the words and calls, one in each line; line breaks in the bot's words are removed."""
    lines = []
    for turn in talk.turns:
        lines.append(("user", turn.user_text or ""))
        for call in turn.function_calls:
            called = signature(call.function_name or "?", call.arguments or {})
            lines.append(("call", f"{called} (cancelled)" if call.cancelled else called))
        lines.append(("bot", turn.bot_text or ""))
    return "\n".join(f"{who}: {' '.join(text.split())}" for who, text in lines if text.strip())


def _is_made(wanted: ExpectedCall, call: ReportedFunctionCall) -> bool:
    given = call.arguments or {}
    return wanted.name == call.function_name and all(
        given.get(name) == value for name, value in (wanted.args or {}).items()
    )
