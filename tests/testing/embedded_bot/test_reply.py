"""Replies, and which one is chosen."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot, Reply
from rtvi_sync.testing.embedded_bot.reply import as_replies, choose_reply

pytestmark = pytest.mark.inside

SUNNY, RAINY = Reply("It is sunny."), Reply("It rains.")


def test_the_first_pattern_that_is_found_counts() -> None:
    """Patterns ignore case; a text that matches none is repeated."""
    replies = as_replies({"oslo$": SUNNY, "weather|oslo": "It rains."})

    assert choose_reply(replies, "The weather in Oslo", 0) == SUNNY
    assert choose_reply(replies, "Oslo?", 7) == RAINY
    assert choose_reply(replies, "Hello", 0) == Reply("You said: Hello")


def test_a_list_is_followed_and_begins_again() -> None:
    """A list of strings and replies is followed in order, and starts again after its end."""
    replies = as_replies(["It rains.", SUNNY])

    assert [choose_reply(replies, "", run) for run in range(3)] == [RAINY, SUNNY, RAINY]
    assert choose_reply(as_replies(SUNNY), "", 5) == SUNNY


def test_a_function_returns_a_string_or_a_reply() -> None:
    """Anything else is an error that says so."""

    def replies(said: str) -> Any:
        return {"weather": SUNNY, "oslo": "It rains."}.get(said)

    assert choose_reply(replies, "weather", 0) == SUNNY
    assert choose_reply(replies, "oslo", 0) == RAINY
    with pytest.raises(TypeError, match=r"what the function of replies returns must be .* not None"):
        choose_reply(replies, "Hello", 0)


def test_a_call_by_name_has_no_arguments() -> None:
    """A call by name equals a call with that name and no arguments."""
    assert Reply("", call="get_time") == Reply("", call=("get_time", {}))


def test_a_call_needs_a_text() -> None:
    """The model runs after a function."""
    with pytest.raises(ValueError, match="call needs text: the words that the model writes after the function"):
        Reply(call="get_time")


def test_replies_are_refused_where_they_are_given() -> None:
    """The error names the pattern."""
    with pytest.raises(ValueError, match=r"each key of replies must be a regular expression \(a str\), not '\('"):
        EmbeddedBot(replies={"(": "Yes."})
    with pytest.raises(TypeError, match=r"replies\['oslo'\] must be a string or a Reply, not int"):
        EmbeddedBot(replies={"oslo": 5})  # type: ignore[dict-item]
