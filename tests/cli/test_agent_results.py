"""Results of tools: JSON that is small whatever a bot has sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtvi_sync import BotError, ExpectationError, Turn
from rtvi_sync.cli.agent_results import as_text, failure_result, turn_result
from rtvi_sync.conversation.record import ReportedFunctionCall

pytestmark = pytest.mark.inside

TEXTS = st.one_of(st.text(max_size=50), st.sampled_from(["x" * 9000, "\0" * 5000, "🎉" * 3000, "\ud800", '"\\' * 4000]))
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | TEXTS, lambda each: st.lists(each))
CALLS = st.builds(
    ReportedFunctionCall,
    function_name=st.none() | TEXTS,
    arguments=st.none() | st.dictionaries(TEXTS, JSON, max_size=3),
    result=JSON,
)
TURNS = st.builds(
    Turn,
    session=st.just(1),
    number=st.just(1),
    initiator=st.just("user"),
    user_text=TEXTS,
    bot_text=TEXTS,
    spoken_text=TEXTS,
    function_calls=st.lists(CALLS, max_size=40).map(tuple),
)


def shown(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result as an agent gets it."""
    text = as_text(result)
    assert len(text.encode()) <= 8000
    data: dict[str, Any] = json.loads(text)
    return data


@given(TURNS)
def test_any_turn_is_small(turn: Turn) -> None:
    """Any texts and calls make a result of 8 kB at most, with all of its keys."""
    keys = ["turn", "status", "user_text", "bot_text", "spoken_text", "calls", "errors", "latencies_ms", "timeline"]
    data = shown(turn_result(turn, None))
    assert [key for key in data if key != "cut"] == keys


@given(st.lists(TEXTS, min_size=1, max_size=200))
def test_any_error_is_small(texts: list[str]) -> None:
    """Any number of unmet expectations makes a result of 8 kB at most."""
    unmet = [(text, text, "text_mismatch") for text in texts]
    data = shown(failure_result(ExpectationError(*unmet[0], others=unmet[1:], timeline="\n".join(texts)), "", "a"))
    assert (data["kind"], data["recording"]) == ("text_mismatch", "a")


def test_a_small_result_is_whole() -> None:
    """A result within the limits is whole."""
    turn = Turn(
        session=1, number=3, initiator="user", user_text="a\nb", bot_text="ü" * 2000, spoken_text="\ud800 and 🎉"
    )
    data = shown(turn_result(turn, "/tmp/x.jsonl"))
    assert "cut" not in data
    assert (data["user_text"], data["bot_text"], data["spoken_text"]) == ("a\nb", "ü" * 2000, "? and 🎉")
    assert (data["recording"], data["turn"]) == ("/tmp/x.jsonl", 3)


def test_what_is_cut() -> None:
    """Long texts keep their start, long lists both ends; arguments become the start of their JSON."""
    calls = [ReportedFunctionCall(function_name=f"f{number}", arguments={"a": "b" * 900}) for number in range(100)]
    turn = Turn(session=1, number=1, initiator="user", bot_text="word " * 2000, function_calls=tuple(calls))
    data = shown(turn_result(turn, None))
    assert data["bot_text"].startswith("word word")
    assert data["bot_text"].endswith("…")
    names = [call if isinstance(call, str) else call["name"] for call in data["calls"]]
    assert (names[0], names[-1]) == ("f0", "f99")
    assert f"... {100 - len(names) + 1} more ..." in names
    assert data["calls"][0]["arguments"].startswith('{"a": "bbb')
    assert data["cut"].startswith("texts to ")


def test_an_error_with_a_turn() -> None:
    """An error has the turn in which it happened, and one without a text its class."""
    error = BotError("No")
    error.turn = Turn(session=1, number=2, initiator="user", user_text="Hi")
    data = shown(failure_result(error, "Go on", None))
    assert (data["error"], data["kind"], data["next"]) == ("No", "BotError", "Go on")
    assert data["so_far"]["user_text"] == "Hi"
    assert shown(failure_result(TimeoutError(), "", None))["error"] == "TimeoutError"
