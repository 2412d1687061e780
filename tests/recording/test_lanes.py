"""The bars, waits and marks of a recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import Recording, Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.recording.lanes import (
    LANES,
    bars_of,
    bot_span,
    failure_in_words,
    marks_of,
    turn_at,
    turn_bars,
    turn_marks,
    user_span,
    waits_of,
)
from tests.support.recordings import Script

pytestmark = pytest.mark.inside


def turn_of(**timings: float) -> Turn:
    return Turn(number=1, session=1, initiator="user", modality="audio", timings=TurnTimings(**timings))


def test_each_lane_has_what_happened_in_it(talk: Recording) -> None:
    """Bars are in the order of time, none ends before it starts, and each belongs to its turn."""
    bars = bars_of(talk, talk.turns())
    assert {bar.lane for bar in bars} == {"user", "model", "functions", "bot"} < LANES.keys()
    assert [bar.start for bar in bars] == sorted(bar.start for bar in bars)
    assert all(0 <= bar.start < bar.end <= talk.seconds + 0.1 for bar in bars)
    functions = [(bar.turn, bar.text, round(bar.end - bar.start, 2)) for bar in bars if bar.lane == "functions"]
    assert functions == [(2, "check_availability", 0.35), (5, "plan_route", 0.35)]
    assert [bar.turn for bar in bars if bar.lane == "bot"] == [1, 2, 3, 4, 5]
    assert [bar.turn for bar in bars if bar.unheard] == [3]
    assert [bar.turn for bar in bars if bar.lane == "model"] == [1, 2, 2, 3, 4, 5, 5, 6]


def test_waits_are_latencies(talk: Recording) -> None:
    """A wait is as long as the latency of its turn, and is named by how the user asked."""
    waits = {wait.turn: (wait.name, wait.end - wait.start) for wait in waits_of(talk.turns())}
    turns = {turn.number: turn for turn in talk.turns()}
    assert waits == {
        2: ("voice to voice", turns[2].voice_to_voice),
        3: ("voice to voice", turns[3].voice_to_voice),
        4: ("first audio", turns[4].time_to_first_audio),
        5: ("voice to voice", turns[5].voice_to_voice),
    }
    silent = waits_of([turn_of(user_stopped=1.0, first_token=1.5)])
    assert [(wait.name, wait.end) for wait in silent] == [("first token", 1.5)]


def test_marks(talk: Recording) -> None:
    """Interruptions, errors, losses, marks of the application and the end are marks, with the turn they are in."""
    marks = [(mark.kind, mark.turn) for mark in marks_of(talk, talk.turns())]
    assert marks == [("interruption", 3), ("mark", 4), ("lost", 5), ("error", 6), ("end", None)]
    words = [mark.text for mark in marks_of(talk, talk.turns())]
    assert words[2] == "0.28 s of the user's audio are missing: slow server"
    assert words[-1] == "the session was ended by the client, code 1000"


def failures_of(script: Script, **end: Any) -> list[str]:
    recording = Recording.load(script.write(**end))
    return [failure_in_words(turn, recording.rows) for turn in recording.turns()]


def test_why_a_turn_failed(tmp_path: Path) -> None:
    """The reason is the bot's error, a call without a result, the end of the session, or silence."""
    script = Script(tmp_path, audio=False)
    script.turn("Who are you?", "A bot.", spoken=False)
    script.turn("And I?", "", spoken=False, error="no model")
    script.send("send-text", content="Hello?", options={"run_immediately": True})
    script.now += 700.0
    script.send("send-text", content="Rain?", options={"run_immediately": True})
    script.receive("user-llm-text", text="Rain?")
    script.receive("bot-llm-started")
    script.receive("llm-function-call-in-progress", function_name="weather", tool_call_id="c1", arguments={})
    script.now += 1.0
    found = failures_of(script, error="out of memory")
    assert found[:2] == ["", "the bot reported “no model”"]
    assert found[2] == "no answer came within 600.0 s"
    call, end = "the call of weather has no result", "the session was ended by the bot, code 1011: out of memory"
    assert found[3] == f"{call}; {end}"


def test_what_is_not_known_of_a_turn() -> None:
    """A turn that tells little has a short bar where something is known, and none where nothing is."""
    assert user_span(turn_of()) is None
    assert bot_span(turn_of()) is None
    assert user_span(turn_of(user_stopped_reported=2.0)) == (2.0, 2.02)
    assert user_span(turn_of(user_started=2.2, user_stopped=2.0)) == (2.0, 2.2)
    assert bot_span(turn_of(first_token=3.0)) == (3.0, 3.02)
    assert bot_span(turn_of(first_audio=3.0, interrupted_at=4.0, bot_stopped_speaking=5.0)) == (3.0, 4.0)
    assert turn_at(0.5, []) is None


def test_turns_alone(talk: Recording) -> None:
    """Turns without their recording have all bars but the model's, and its interruptions and errors as marks."""
    turns = talk.turns()
    assert turn_bars(turns) == sorted(
        (bar for bar in bars_of(talk, turns) if bar.lane != "model"), key=lambda bar: bar.turn or 0
    )
    of_turns = [(mark.kind, mark.turn) for mark in turn_marks(turns)]
    assert of_turns == [("interruption", 3), ("error", 6)]
