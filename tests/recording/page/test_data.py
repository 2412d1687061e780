"""The page's data of a recording, and its findings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtvi_sync import Recording
from rtvi_sync.recording.lanes import marks_of
from rtvi_sync.recording.page.data import findings_of, recordings_data, turns_data
from tests.support.recordings import Script, a_talk

pytestmark = pytest.mark.inside


def kinds_of(recording: Recording) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.turn) for finding in findings_of(recording, recording.turns())]


def test_marks_and_what_went_wrong_come_first(talk: Recording) -> None:
    """Findings name the turn; findings that are no fault are last, unless the application has marked them."""
    assert kinds_of(talk) == [
        ("Mark", 4),
        ("Failed", 6),
        ("Slow", 5),
        ("Lost", None),
        ("Interrupted", 3),
    ]
    texts = {finding.kind: finding.text for finding in findings_of(talk, talk.turns())}
    error = "the bot reported “LLM service: rate limit exceeded, retry after 20 s”"
    assert texts["Failed"] == f"The answer was not complete: {error}."
    assert [turn["failure"] for turn in recordings_data([talk])["recordings"][0]["turns"]] == [*[""] * 5, error]
    assert texts["Interrupted"] == "The bot was interrupted; 56 of 101 characters were not heard."
    assert texts["Slow"].startswith("The bot was first heard after 2.60 s")


def test_a_failed_test(tmp_path: Path) -> None:
    """The mark of a failed test is first, before the application's marks, and is a fault."""
    script = a_talk(tmp_path, audio=False)
    script.row("mark", text="here")
    script.row("mark", text="The test failed: turn 2: too late")
    failed = Recording.load(script.write())
    first, second, *_ = findings_of(failed, failed.turns())
    assert (first.kind, first.bad, first.text.partition(" (")[0]) == ("Test failed", True, "turn 2: too late")
    assert (second.kind, second.bad) == ("Mark", False)
    assert [mark.kind for mark in marks_of(failed, failed.turns())].count("failed") == 1


def test_a_cut_recording(tmp_path: Path) -> None:
    """A recording without an end says where it is cut, and that its last answer is open."""
    cut = Recording.load(a_talk(tmp_path, audio=False).write(is_cut=True))
    assert {("Cut", None), ("Unanswered", 6)} <= set(kinds_of(cut))


def test_a_session_that_failed(tmp_path: Path) -> None:
    """The end of a session counts if it was no usual one."""
    failed = Recording.load(a_talk(tmp_path, audio=False).write(error="out of memory"))
    texts = [finding.text for finding in findings_of(failed, failed.turns()) if finding.kind == "End"]
    assert len(texts) == 1
    assert texts[0].endswith("the session was ended by the bot, code 1011: out of memory.")


def test_no_turn(tmp_path: Path) -> None:
    """A recording without turns lists its contents."""
    script = Script(tmp_path, audio=False)
    script.receive("metrics")
    empty = Recording.load(script.write())
    [finding] = findings_of(empty, empty.turns())
    assert finding.kind == "No turn"
    assert "metrics from the bot (1)" in finding.text


def test_the_data_are_small(talk: Recording) -> None:
    """Times have three digits, and waveforms a column each 10 ms."""
    [data] = json.loads(json.dumps(recordings_data([talk])))["recordings"]
    assert data["waves"]["column"] == 0.01
    assert data["audio"] == {"name": "talk.wav", "source": "talk.wav"}
    assert all(round(bar["start"], 3) == bar["start"] for bar in data["bars"])
    assert [wait["turn"] for wait in data["waits"] if wait["slowest"]] == [5]


def test_turns_alone(talk: Recording) -> None:
    """Turns of a client start at 0 on their timeline, whatever its clock, and have the rows that a recording has."""
    [whole] = recordings_data([talk])["recordings"]
    [part] = turns_data(talk.turns())["recordings"]
    assert [turn["bot_text"] for turn in part["turns"]] == [turn["bot_text"] for turn in whole["turns"]]
    assert min(turn["start"] for turn in part["turns"]) == 0
    moved = {round(one["start"] - other["start"], 2) for one, other in zip(whole["turns"], part["turns"], strict=True)}
    assert len(moved) == 1
    assert part["seconds"] == max(turn["end"] for turn in part["turns"])
    assert turns_data([])["recordings"][0]["seconds"] == 0
