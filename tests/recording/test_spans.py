"""The spans of turns, from a recording."""

from __future__ import annotations

import json

import pytest

from rtvi_sync import Recording
from rtvi_sync.recording import spans
from rtvi_sync.recording.spans import turn_span

pytestmark = pytest.mark.inside


def test_an_interrupted_turn(talk: Recording) -> None:
    """With content, the written text and its heard part are two attributes."""
    turn = talk.turns()[2]
    plain = turn_span(turn, "7", talk.seconds)
    planned = turn_span(turn, "7", talk.seconds, content=True)
    assert planned.attributes[spans.WAS_INTERRUPTED] is True
    [message] = json.loads(str(planned.attributes[spans.OUTPUT]))
    assert message["parts"][0]["content"] == turn.bot_text
    assert planned.attributes[spans.SPOKEN] == turn.spoken_text
    assert {*planned.attributes} - {*plain.attributes} == {spans.INPUT, spans.OUTPUT, spans.SPOKEN}


def test_a_turn_that_ends_with_its_conversation(talk: Recording) -> None:
    """A turn that is cut says so, and one that ended by itself says nothing."""
    turn = talk.turns()[1]
    assert spans.ENDED_BY_CONVERSATION_END not in turn_span(turn, "7", 99.0).attributes
    assert turn_span(turn, "7", 99.0, is_cut=True).attributes[spans.ENDED_BY_CONVERSATION_END] is True
    assert turn_span(turn, "7", 99.0).end == turn.timings.ended


def test_a_call(talk: Recording) -> None:
    """Arguments and results are JSON, and there with content alone."""
    turn = talk.turns()[1]
    [plain] = turn_span(turn, "7", talk.seconds).children
    [call] = turn_span(turn, "7", talk.seconds, content=True).children
    assert call.name == "execute_tool check_availability"
    assert json.loads(str(call.attributes[spans.TOOL_ARGUMENTS])) == {"day": "Friday", "party_size": 4}
    assert json.loads(str(call.attributes[spans.TOOL_RESULT])) == {"free": ["19:00", "20:30"]}
    assert {*call.attributes} - {*plain.attributes} == {spans.TOOL_ARGUMENTS, spans.TOOL_RESULT}
