"""A recording as a trace of Chrome."""

from __future__ import annotations

import json

import pytest

from rtvi_sync import Recording
from rtvi_sync.recording.export_chrome import chrome_trace
from rtvi_sync.recording.lanes import LANES

pytestmark = pytest.mark.inside


def test_a_thread_for_each_lane(talk: Recording) -> None:
    """The trace has the names of process and lanes, complete events in microseconds, and marks as instants."""
    events = json.loads(chrome_trace(talk, talk.turns(), "talk"))["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {0: "talk", **dict(enumerate(LANES.values(), 1))}
    spans = [event for event in events if event["ph"] == "X"]
    assert all(isinstance(span["ts"], int) and span["dur"] >= 0 for span in spans)
    [call] = [span for span in spans if span["name"] == "plan_route"]
    assert (names[call["tid"]], call["dur"], call["args"]) == ("Functions", 350_000, {"turn": 5})
    waits = [span["dur"] for span in spans if span["name"] == "voice to voice"]
    assert waits == [pytest.approx(1e6 * t.voice_to_voice, abs=2) for t in talk.turns() if t.voice_to_voice]
    marks = [event["name"] for event in events if event["ph"] == "i"]
    assert marks[0] == "interruption: the bot was interrupted"
    assert len(marks) == 5
