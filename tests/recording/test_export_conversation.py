"""A recording as a conversation file of Pipecat's evals."""

from __future__ import annotations

import json

import pytest

from rtvi_sync import Recording, Turn
from rtvi_sync.conversation.record import ReportedFunctionCall
from rtvi_sync.recording.export_conversation import conversation

pytestmark = pytest.mark.inside


def test_who_said_what(talk: Recording) -> None:
    """Heard words are in the order of the turns, each call before the answer that needed it."""
    messages = json.loads(conversation(talk.turns()))
    assert messages[:4] == [
        {"role": "assistant", "content": "Hello, this is the pizza line. What can I get for you?"},
        {"role": "user", "content": "Do you have a table for four on Friday?"},
        {
            "role": "tool_call",
            "name": "check_availability",
            "arguments": {"day": "Friday", "party_size": 4},
            "cancelled": False,
        },
        {"role": "assistant", "content": "Yes. Friday at seven works for a table of four."},
    ]
    assert messages[5] == {"role": "assistant", "content": "It is booked. You will get a message with all"}
    assert messages[-1] == {"role": "user", "content": "Thank you, bye."}


def test_one_message_between_two_of_the_user() -> None:
    """All that the bot says between two words of the user is one message, after the calls of all of it."""
    call = ReportedFunctionCall(cancelled=True)
    turns = [
        Turn(number=1, session=1, initiator="user", user_text="Hi", bot_text="One.", status="complete"),
        Turn(number=2, session=1, initiator="bot", bot_text="Two.", function_calls=(call,), status="complete"),
    ]
    assert json.loads(conversation(turns)) == [
        {"role": "user", "content": "Hi"},
        {"role": "tool_call", "name": "", "arguments": {}, "cancelled": True},
        {"role": "assistant", "content": "One. Two."},
    ]
