"""The result of a scenario as objects, and as text, JUnit XML and Pipecat's results. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from xml.etree import ElementTree

import attrs

from rtvi_sync.protocol.record import Record
from rtvi_sync.protocol.recording_rows import loads
from rtvi_sync.protocol.text import clean, one_line
from rtvi_sync.protocol.validation import BOOL
from rtvi_sync.testing.scenarios.matching import FailureKind, Verdict

TurnVerdict: TypeAlias = Verdict | Literal["not_run"]

#: The first of these that occurs is the verdict of a whole.
_ORDER: Final[tuple[Verdict, ...]] = ("failed", "unsupported", "not_judged", "passed")
# Length limit of a quoted text in a line of a report, in characters.
_SHOWN: Final = 300
# Files of a recording in Pipecat's results, in which "recording" is the audio.
_ARTIFACTS: Final[Mapping[str, str]] = {".html": "page", ".jsonl": "messages", ".wav": "recording"}
_MARKS: Final[Mapping[str, str]] = {
    "passed": "PASS",
    "failed": "FAIL",
    "not_judged": "NOT JUDGED",
    "unsupported": "UNSUPPORTED",
    "not_run": "NOT RUN",
}


@attrs.frozen(eq=False, repr=False)
class ScenarioFailure(Record):
    """A failed check.

    Attributes:
        turn_index, expectation_index: Position, counted from 0; -1 for the run, or the turn, as a whole.
        event_name: Event of the expectation; otherwise a name such as "<connect>".
        kind, reason: Kind and cause of the failure.
    """

    turn_index: int
    expectation_index: int
    event_name: str
    kind: FailureKind
    reason: str

    def __str__(self) -> str:
        """Return the failure in one line."""
        where = f"turn {self.turn_index}" if self.turn_index >= 0 else "the session"
        which = f", expectation {self.expectation_index} ({self.event_name})" if self.expectation_index >= 0 else ""
        return f"{where}{which}: {one_line(self.reason)} [{self.kind}]"


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ExpectationResult(Record):
    """The outcome of an expectation.

    Attributes:
        index: Position in its turn, counted from 0.
        event_name: Expected event.
        verdict: "not_judged": everything but the criterion holds, and there was no judge. "unsupported": the bot's door
            doesn't report the event.
        kind, reason: Cause of the failure; None and "" if it passed.
        matched: Short form of the match.
    """

    index: int
    event_name: str
    verdict: Verdict
    kind: FailureKind | None = None
    reason: str = ""
    matched: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ScenarioTurnResult(Record):
    """The outcome of a turn.

    Attributes:
        index: Position, counted from 0.
        verdict: "not_run" if an earlier turn ended the scenario.
        expectations: The checked expectations.
        failure: Failure of the turn itself; None if there is none.
        reason: Why the door cannot run the turn; "" if it can.
        duration_ms (milliseconds): Duration. 0 if it did not run.
    """

    index: int
    verdict: TurnVerdict = "not_run"
    expectations: Sequence[ExpectationResult] = ()
    failure: ScenarioFailure | None = None
    reason: str = ""
    duration_ms: int = 0

    @property
    def failures(self) -> list[ScenarioFailure]:
        """Failures of the turn."""
        own = [] if self.failure is None else [self.failure]
        return own + [
            ScenarioFailure(self.index, each.index, each.event_name, each.kind, each.reason)
            for each in self.expectations
            if each.verdict == "failed" and each.kind is not None
        ]


@attrs.frozen(kw_only=True, eq=False, repr=False)
class MetricResult(Record):
    """The outcome of a metric of a simulated conversation.

    Attributes:
        name: Name of the metric; "success" for the goal.
        verdict: Verdict of the metric.
        value: Measured value in its unit, or the share of the bot's turns that meet the criterion, from 0 to 1; None if
            there was none.
        kind, reason: Cause of the failure.
    """

    name: str
    verdict: Verdict
    value: float | None = None
    kind: FailureKind | None = None
    reason: str = ""


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ScenarioResult(Record):
    """The result of a scenario. Its text is the report.

    Attributes:
        name: "FILE/SCENARIO".
        path: Path of the file.
        kind: "script" or "simulation".
        door: Transport by which the bot was reached; "" if none was.
        turns: All turns of a scripted scenario.
        metrics: Metrics of a simulated scenario.
        failure: Failure of the run as a whole, such as an unreachable bot; None if there is none.
        reason: Why the scenario could not run at all; "" if it did.
        attempt: Number of the run of a simulated scenario, counted from 1.
        duration_ms (milliseconds): Duration of the run.
        recording: Files of the recording, the page first; empty if there is none.
        events: Events of the bot, oldest first, as in Pipecat's results.
        conversation: Lines as pairs of speaker ("user" or "bot") and text.
    """

    name: str
    path: Path
    kind: Literal["script", "simulation"] = "script"
    door: str = ""
    turns: Sequence[ScenarioTurnResult] = ()
    metrics: Sequence[MetricResult] = ()
    failure: ScenarioFailure | None = None
    reason: str = ""
    attempt: int = 1
    duration_ms: int = 0
    recording: Sequence[Path] = ()
    events: Sequence[Mapping[str, Any]] = attrs.field(default=(), repr=False)
    conversation: Sequence[tuple[str, str]] = attrs.field(default=(), repr=False)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict: "failed", then "unsupported", then "not_judged", otherwise "passed"."""
        if self.failure is not None:
            return "failed"
        if self.reason:
            return "unsupported"
        return worst([turn.verdict for turn in self.turns] + [metric.verdict for metric in self.metrics])

    @property
    def failures(self) -> list[ScenarioFailure]:
        """All failures in order."""
        own = [] if self.failure is None else [self.failure]
        measured = [
            ScenarioFailure(-1, -1, metric.name, metric.kind, metric.reason)
            for metric in self.metrics
            if metric.verdict == "failed" and metric.kind is not None
        ]
        return own + [failure for turn in self.turns for failure in turn.failures] + measured

    @property
    def skip_reason(self) -> str | None:
        """Why the verdict is "unsupported" or "not_judged", in one line; None for other verdicts."""
        if self.verdict not in ("unsupported", "not_judged"):
            return None
        reasons = [self.reason, *(turn.reason for turn in self.turns)]
        reasons += [each.reason for turn in self.turns for each in turn.expectations if each.verdict == self.verdict]
        reasons += [metric.reason for metric in self.metrics if metric.verdict == self.verdict]
        return f"{self.verdict.replace('_', ' ')}: {one_line(next(filter(None, reasons), ''))}"

    def record(self) -> dict[str, Any]:
        """Return the result as a record of Pipecat's ``results.jsonl``, with the extra keys `verdict` and `door`."""
        return {
            "bot": None,
            "name": self.name,
            "scenario": str(self.path),
            "kind": self.kind,
            "attempt": self.attempt,
            "passed": self.verdict == "passed",
            "skipped": self.skip_reason,
            "error": None,
            "verdict": self.verdict,
            "door": self.door,
            "duration_ms": self.duration_ms,
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "turns": [_turn_record(turn) for turn in self.turns],
            **({"metrics": [attrs.asdict(metric) for metric in self.metrics]} if self.kind == "simulation" else {}),
            "artifacts": {_ARTIFACTS.get(path.suffix, path.suffix): str(path) for path in self.recording},
            **({"events_seen": list(self.events)} if self.verdict != "passed" else {}),
        }

    def __str__(self) -> str:
        """Return the report. A passed scenario has one line."""
        return self.report()

    def report(self, *, verbose: bool = False) -> str:
        """Return the report.

        Args:
            verbose: True to include each expectation, and the lines of a simulated conversation, even if all passed.
        """
        BOOL.check(verbose=verbose)
        seconds = f"{self.duration_ms / 1000:.1f} s"
        by = f", {self.door}" if self.door else ""
        lines = [f"{_MARKS[self.verdict]:<11}  {self.name}  ({seconds}{by})"]
        if self.failure is not None:
            lines.append(f"  {self.failure}")
        if self.reason:
            lines.append(f"  {one_line(self.reason)}")
        if verbose or self.verdict != "passed":
            lines += [line for turn in self.turns for line in _lines_of(turn)]
            if self.kind == "simulation":
                lines += [f"  {speaker:<4}  {one_line(text, _SHOWN)}" for speaker, text in self.conversation]
        for metric in self.metrics:
            value = "" if metric.value is None else f" {metric.value:g}"
            why = f": {one_line(metric.reason)}" if metric.reason else ""
            kind = f" [{metric.kind}]" if metric.kind is not None else ""
            lines.append(f"  {_MARKS[metric.verdict]:<11}  {metric.name}{value}{why}{kind}")
        return "\n".join(map(clean, lines))


def worst(verdicts: Iterable[str]) -> Verdict:
    """Return the verdict of a whole from the verdicts of its parts."""
    found = set(verdicts)
    return next((verdict for verdict in _ORDER if verdict in found), "passed")


def _turn_record(turn: ScenarioTurnResult) -> dict[str, Any]:
    return {
        "turn_index": turn.index,
        "status": turn.verdict,
        "duration_ms": turn.duration_ms,
        "expectations": [
            {
                "expectation_index": each.index,
                "event_name": each.event_name,
                "passed": each.verdict == "passed",
                "matched": each.matched,
                "verdict": each.verdict,
            }
            for each in turn.expectations
        ],
    }


def _lines_of(turn: ScenarioTurnResult) -> list[str]:
    lines = [f"  turn {turn.index}: {_MARKS[turn.verdict].lower()}"]
    if turn.failure is not None:
        lines.append(f"    {one_line(turn.failure.reason)} [{turn.failure.kind}]")
    if turn.reason:
        lines.append(f"    {one_line(turn.reason)}")
    for each in turn.expectations:
        told = f" {one_line(each.matched, 100)!r}" if each.matched else ""
        told += f": {one_line(each.reason)}" if each.reason else ""
        kind = f" [{each.kind}]" if each.kind is not None else ""
        lines.append(f"    {_MARKS[each.verdict]:<11}  {each.index} {each.event_name}{told}{kind}")
    return lines


# -- files ------------------------------------------------------------------------------------------------------------


def json_lines(results: Iterable[ScenarioResult]) -> str:
    """Return results as Pipecat's ``results.jsonl``: a record for each line, always in ASCII."""
    records = (loads(json.dumps(result.record(), default=str)) for result in results)  # without NaN
    return "".join(f"{json.dumps(record)}\n" for record in records)


def junit(results: Sequence[ScenarioResult], not_run: Sequence[str] = ()) -> str:
    """Return results as JUnit XML. Scenarios that were not judged or not supported count as skipped.

    Args:
        results: Results of scenarios.
        not_run: Names of scenarios that did not run to their end; they count as skipped, too.
    """
    verdicts = [result.verdict for result in results]
    suite = ElementTree.Element(
        "testsuite",
        name="rtvi-sync eval",
        tests=str(len(results) + len(not_run)),
        failures=str(verdicts.count("failed")),
        errors="0",
        skipped=str(verdicts.count("not_judged") + verdicts.count("unsupported") + len(not_run)),
        time=_seconds(sum(result.duration_ms for result in results)),
    )
    for result in results:
        case = _test_case(suite, result.name, result.path.stem, result.duration_ms)
        if result.recording:
            properties = ElementTree.SubElement(case, "properties")
            for path in result.recording:
                ElementTree.SubElement(properties, "property", name="rtvi_recording", value=_xml(str(path)))
        for failure in result.failures:
            where = "" if failure.turn_index < 0 else f"turn {failure.turn_index}: "
            message = _xml(f"{where}{one_line(failure.reason)}")
            told = ElementTree.SubElement(case, "failure", message=message, type=failure.kind)
            told.text = _xml(str(failure))
        if (why := result.skip_reason) is not None:
            ElementTree.SubElement(case, "skipped", message=_xml(why), type=result.verdict)
        ElementTree.SubElement(case, "system-out").text = "\n".join(map(_xml, str(result).splitlines()))
    for name in not_run:
        case = _test_case(suite, name, "", 0)
        ElementTree.SubElement(case, "skipped", message="not run: the run was ended before", type="not_run")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text: str = ElementTree.tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _test_case(suite: ElementTree.Element, full_name: str, stem: str, duration_ms: int) -> ElementTree.Element:
    file, _, name = full_name.rpartition("/")
    told = {"classname": _xml(file or stem), "name": _xml(name), "time": _seconds(duration_ms)}
    return ElementTree.SubElement(suite, "testcase", told)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.3f}"


def _xml(text: str) -> str:
    """Return text without the characters that XML forbids."""
    return re.sub("[\ufffe\uffff]", " ", clean(text))
