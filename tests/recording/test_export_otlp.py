"""A recording as spans of OpenTelemetry."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rtvi_sync import Recording
from rtvi_sync.recording.export_otlp import otlp

pytestmark = pytest.mark.inside

WALL = 1_795_845_600_000_000_000  # 2026-11-28 06:00:00 UTC, in nanoseconds


def spans_of(recording: Recording) -> list[dict[str, Any]]:
    request = json.loads(otlp(recording, recording.turns()))
    [resource] = request["resourceSpans"]
    [scope] = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


def test_the_tree(talk: Recording) -> None:
    """A conversation has its turns as children, and a turn its calls; ids are hex, and the same each time."""
    spans = spans_of(talk)
    assert spans == spans_of(talk)
    root, *others = spans
    assert root["name"] == "conversation"
    assert "parentSpanId" not in root
    turns = [span for span in others if span["name"] == "turn"]
    assert [span["parentSpanId"] for span in turns] == [root["spanId"]] * 6
    calls = {span["name"]: span["parentSpanId"] for span in others if span["name"].startswith("execute_tool")}
    assert calls == {
        "execute_tool check_availability": turns[1]["spanId"],
        "execute_tool plan_route": turns[4]["spanId"],
    }
    assert {span["traceId"] for span in spans} == {root["traceId"]}
    assert all(re.fullmatch("[0-9a-f]{32}", span["traceId"]) for span in spans)
    assert len({span["spanId"] for span in spans}) == len(spans)
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in spans)


def test_times_and_attributes(talk: Recording) -> None:
    """Times are the timings by the wall clock, integers are strings, and the names are as in Pipecat's traces."""
    span = [span for span in spans_of(talk) if span["name"] == "turn"][2]
    turn = talk.turns()[2]
    stopped = next(event for event in span["events"] if event["name"] == "user_stopped")
    assert turn.timings.user_stopped is not None
    assert int(stopped["timeUnixNano"]) == pytest.approx(WALL + 1e9 * turn.timings.user_stopped, abs=1e6)
    assert int(span["startTimeUnixNano"]) <= int(stopped["timeUnixNano"]) <= int(span["endTimeUnixNano"])
    found = attributes_of(span)
    assert found["turn.number"] == "3"
    assert found["turn.was_interrupted"] is True
    assert found["turn.user_bot_latency_seconds"] == turn.voice_to_voice
    assert (found["rtvi.turn.status"], found["rtvi.turn.modality"]) == ("interrupted", "audio")
    greeting = attributes_of(next(span for span in spans_of(talk) if span["name"] == "turn"))
    assert "turn.user_bot_latency_seconds" not in greeting


def test_no_words_of_either_side(talk: Recording) -> None:
    """Texts, arguments and results stay in the recording; an error is the status of its turn."""
    text = json.dumps(spans_of(talk))
    for words in ("pizza", "Harbour", "party_size", "19:00"):
        assert words not in text
    failed = [span for span in spans_of(talk) if span["status"]]
    assert [span["status"] for span in failed] == [
        {"code": 2, "message": "LLM service: rate limit exceeded, retry after 20 s"}
    ]
