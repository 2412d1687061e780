from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rtvi_sync.testing.scenarios import (
    ExpectationResult,
    MetricResult,
    ScenarioFailure,
    ScenarioResult,
    ScenarioTurnResult,
)
from rtvi_sync.testing.scenarios.report import json_lines, junit, worst

pytestmark = pytest.mark.inside


def result(*turns: ScenarioTurnResult, name: str = "file/case", **fields: Any) -> ScenarioResult:
    return ScenarioResult(name=name, path=Path("file.yaml"), door="eval", turns=turns, duration_ms=1234, **fields)


def turn(*verdicts: str) -> ScenarioTurnResult:
    """Return a turn of expectations with these verdicts."""
    found = [
        ExpectationResult(
            index=index,
            event_name="llm_response",
            verdict=verdict,  # type: ignore[arg-type]
            kind="timeout" if verdict == "failed" else None,
            reason="" if verdict == "passed" else f"because of {verdict}",
            matched="Hi" if verdict == "passed" else "",
        )
        for index, verdict in enumerate(verdicts)
    ]
    return ScenarioTurnResult(index=0, verdict=worst(verdicts), expectations=found)


PASSED, FAILED = result(turn("passed")), result(turn("passed", "failed"))
NOT_JUDGED, UNSUPPORTED = result(turn("passed", "not_judged")), result(turn("not_judged", "unsupported"))
NOT_CONNECTED = result(failure=ScenarioFailure(-1, -1, "<connect>", "connect_failed", "refused"))
NOT_RUN = result(ScenarioTurnResult(index=0), reason="use the eval route")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (PASSED, "passed"),
        (FAILED, "failed"),
        (NOT_JUDGED, "not_judged"),
        (UNSUPPORTED, "unsupported"),
        (NOT_CONNECTED, "failed"),
        (NOT_RUN, "unsupported"),
        (result(turn("failed"), turn("unsupported")), "failed"),
        (result(metrics=[MetricResult(name="success", verdict="not_judged")]), "not_judged"),
        (result(), "passed"),
    ],
)
def test_the_verdict_of_a_scenario(given: ScenarioResult, verdict: str) -> None:
    """Failed if any has, else unsupported, else not judged, else passed; and a record has passed only then."""
    assert given.verdict == verdict
    record = given.record()
    assert record["passed"] is (verdict == "passed")
    assert (record["skipped"] is not None) is (verdict in ("not_judged", "unsupported"))
    assert ("events_seen" in record) is (verdict != "passed")


def test_records() -> None:
    """A record has the keys of Pipecat's results.jsonl, one a line."""
    failed, connected = map(json.loads, json_lines([FAILED, NOT_CONNECTED]).splitlines())
    keys = [
        "bot",
        "name",
        "scenario",
        "kind",
        "attempt",
        "passed",
        "skipped",
        "error",
        "duration_ms",
        "failures",
        "turns",
        "artifacts",
        "events_seen",
    ]
    assert keys == [key for key in failed if key not in ("verdict", "door")]
    assert failed["failures"] == [
        {
            "turn_index": 0,
            "expectation_index": 1,
            "event_name": "llm_response",
            "kind": "timeout",
            "reason": "because of failed",
        }
    ]
    (first,) = failed["turns"]
    assert first["status"] == "failed"
    assert first["expectations"][0] == {
        "expectation_index": 0,
        "event_name": "llm_response",
        "passed": True,
        "matched": "Hi",
        "verdict": "passed",
    }
    assert connected["failures"][0]["turn_index"] == -1


def test_the_report() -> None:
    """A passed scenario is one line, unless more is wanted; else each expectation is reported."""
    assert str(PASSED) == "PASS         file/case  (1.2 s, eval)"
    assert PASSED.report(verbose=True).splitlines()[2] == "    PASS         0 llm_response 'Hi'"
    assert "FAIL         1 llm_response: because of failed [timeout]" in str(FAILED)
    assert str(NOT_JUDGED).startswith("NOT JUDGED   file/case")
    match = ExpectationResult(index=0, event_name="llm_response", verdict="not_judged", reason="no judge", matched="Hi")
    told = str(result(ScenarioTurnResult(index=0, verdict="not_judged", expectations=[match])))
    assert told.splitlines()[-1] == "    NOT JUDGED   0 llm_response 'Hi': no judge"
    assert str(NOT_RUN).splitlines()[1:] == ["  use the eval route", "  turn 0: not run"]
    assert "the session: refused [connect_failed]" in str(NOT_CONNECTED)


def test_junit() -> None:
    """Failures have reason and kind; expectations that cannot be judged are skipped, with the reason."""
    text = junit([PASSED, FAILED, NOT_JUDGED, UNSUPPORTED, result(turn("failed"), name="odd \x1b[31m/ca\x00se")])
    suite = ElementTree.fromstring(text)[0]
    assert [suite.get(key) for key in ("tests", "failures", "skipped", "errors")] == ["5", "2", "2", "0"]
    passed, failed, not_judged, unsupported, odd = suite
    assert passed.find("failure") is passed.find("skipped") is None
    failure = failed.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("timeout", "turn 0: because of failed")
    for case, told in ((not_judged, "not judged: because of not_judged"), (unsupported, "unsupported: because of")):
        skipped = case.find("skipped")
        assert skipped is not None
        assert (skipped.get("message") or "").startswith(told)
        assert case.find("failure") is None
    assert odd.get("name") == "ca se"


def test_junit_of_a_run_that_was_ended() -> None:
    """Scenarios that were not run count as skipped."""
    suite = ElementTree.fromstring(junit([PASSED], ["file/other", "single"]))[0]
    assert [suite.get(key) for key in ("tests", "failures", "skipped")] == ["3", "0", "2"]
    assert [(case.get("classname"), case.get("name")) for case in suite][1:] == [("file", "other"), ("", "single")]
    assert [each.get("type") for each in suite.iter("skipped")] == ["not_run", "not_run"]


def test_what_a_bot_may_say() -> None:
    """For any words of a bot, the files are valid: JSON of a record a line, and XML."""
    odd = "\x00 \x1b[31m \x85 \u2028 \ud800 \ufffe \uffff é"
    event = {"type": "function_call", "args": {odd: [math.nan, -math.inf, odd]}}
    expectation = ExpectationResult(
        index=0, event_name="llm_response", verdict="failed", kind="text_mismatch", reason=odd, matched=odd
    )
    given = result(ScenarioTurnResult(index=0, verdict="failed", expectations=[expectation]), events=[event])
    (line,) = json_lines([given]).encode("ascii").splitlines()
    record = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert record["failures"][0]["reason"] == odd
    assert record["events_seen"] == [{**event, "args": {odd: [None, None, odd]}}]
    skipped = result(reason=odd, name=f"{odd}/{odd}")
    failed, unsupported = ElementTree.fromstring(junit([given, skipped]).encode())[0]
    for told in (failed.find("failure"), unsupported.find("skipped")):
        assert told is not None
        assert (told.get("message") or "").endswith("é")


def test_simulated_ones() -> None:
    """Metrics are listed with their values, and their failures with their kinds, below the conversation."""
    metric = MetricResult(name="latency", verdict="failed", value=2.5, kind="out_of_range", reason="2.5, not at most 1")
    talk = [("user", "Hello"), ("bot", "You said:\nHello")]
    given = result(metrics=[metric], kind="simulation", conversation=talk)
    assert str(given).splitlines()[1:] == [
        "  user  Hello",
        "  bot   You said: Hello",
        "  FAIL         latency 2.5: 2.5, not at most 1 [out_of_range]",
    ]
    assert [(each.kind, each.event_name) for each in given.failures] == [("out_of_range", "latency")]
    assert given.record()["metrics"][0]["value"] == 2.5
