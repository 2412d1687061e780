"""Subtitles of a recording."""

from __future__ import annotations

import re

import pytest

from rtvi_sync import Recording, Turn
from rtvi_sync.conversation.record import TurnTimings
from rtvi_sync.recording.export_webvtt import webvtt

pytestmark = pytest.mark.inside

CUE = re.compile(r"(\d\d):(\d\d):(\d\d\.\d{3}) --> (\d\d):(\d\d):(\d\d\.\d{3})\n<v (You|Bot)>([^\n<>]+)")


def test_cues_are_sentences_in_order(talk: Recording) -> None:
    """Each sentence of each side is a cue, which ends after it starts; unheard sentences have none."""
    text = webvtt(talk.turns(), "talk")
    head, note, *cues = text.rstrip("\n").split("\n\n")
    assert (head, note) == ("WEBVTT", "NOTE talk")
    found = [CUE.fullmatch(cue) for cue in cues]
    assert all(found)
    words = [(match[7], match[8]) for match in found if match]
    assert words[:4] == [
        ("Bot", "Hello, this is the pizza line."),
        ("Bot", "What can I get for you?"),
        ("You", "Do you have a table for four on Friday?"),
        ("Bot", "Yes."),
    ]
    assert "your plans change" not in text
    times = [
        tuple(float(match[3 * end + 3]) + 60 * int(match[3 * end + 2]) for end in (0, 1)) for match in found if match
    ]
    assert times == sorted(times)
    assert all(start < end for start, end in times)


def test_hostile_texts_are_one_cue_each(hostile: Recording) -> None:
    """A text with markup, an arrow or a blank line is text of one cue."""
    text = webvtt(hostile.turns(), "a --> b\n\nc")
    head, note, *cues = text.rstrip("\n").split("\n\n")
    assert (head, note) == ("WEBVTT", "NOTE a -> b  c")
    assert [cue for cue in cues if not CUE.fullmatch(cue)] == []
    assert "&lt;script&gt;document.title='broken in'&lt;/script&gt;" in text


def test_long_recordings_have_hours() -> None:
    """A cue after an hour has the hour; words that were typed are shown for a second."""
    timings = TurnTimings(user_started=3723.5, user_stopped=3723.5)
    turn = Turn(number=1, session=1, initiator="user", modality="text", user_text="Hi. 你好。再见。", timings=timings)
    cues = webvtt([turn], "x").split("\n\n")[2:]
    assert [cue.rpartition(">")[2].strip() for cue in cues] == ["Hi.", "你好。", "再见。"]
    assert cues[0].startswith("01:02:03.500 --> ")
