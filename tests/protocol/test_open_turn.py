"""A turn while it may change: its texts, its moments and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.protocol.answer import Answer, BotTraits
from rtvi_sync.protocol.open_turn import OpenTurn
from rtvi_sync.protocol.service_payloads import PipecatMetricsData
from rtvi_sync.protocol.session_payloads import ErrorData
from rtvi_sync.protocol.spoken_text import MAX_CHARACTERS

pytestmark = pytest.mark.inside


def spoken_turn() -> OpenTurn:
    return OpenTurn(1, 1, "audio", Answer(BotTraits()))


def test_partial_words_replace_each_other() -> None:
    """Partial words replace the partial words before them, and final words are joined."""
    turn = spoken_turn()
    turn.told_text = "hello bot"
    assert turn.user_text == "hello bot"
    turn.hear("Hel", final=False)
    turn.hear("Hello", final=False)
    assert turn.user_text == "Hello"
    turn.hear("Hello.", final=True)
    turn.hear("Bot?", final=True)
    assert turn.record().user_text == "Hello. Bot?"


def test_the_first_moment_is_kept() -> None:
    """time_first() keeps the first time of a moment, and time() the last."""
    turn = spoken_turn()
    turn.time_first(first_token=1.0)
    turn.time_first(first_token=2.0)
    turn.time(transcribed=1.0)
    turn.time(transcribed=2.0)
    assert (turn.timings.first_token, turn.timings.transcribed) == (1.0, 2.0)


def test_a_result_that_is_no_json() -> None:
    """The function's caller is told when the result is written; the timeline shows it as it is."""
    circle: list[Any] = []
    circle.append(circle)
    for result in ({("a", 1): 2}, circle):
        turn = spoken_turn()
        turn.note_end_of_call(1.0, "you", "1", result)
        assert turn.record().timeline[-1].text.endswith(repr(result))


def test_what_a_bot_sends_is_bounded() -> None:
    """A turn keeps at most 500 entries in its timeline and `MAX_CHARACTERS` of the user's text."""
    turn = spoken_turn()
    for count in range(600):
        turn.note(float(count), "bot", "speaks")
        turn.hear("a" * 1000, final=True)
    record = turn.record()
    assert len(record.timeline) == 500
    assert len(record.user_text) == MAX_CHARACTERS
    turn.hear("more", final=False)
    assert turn.record().user_text == record.user_text


def test_an_entry_of_the_timeline_is_bounded() -> None:
    """An entry of the timeline keeps at most 2000 characters."""
    turn = spoken_turn()
    turn.note(1.0, "bot", "error", "a" * 3000)
    turn.note_end_of_call(2.0, "bot", "1", "a" * 3000)
    turn.note(3.0, "bot", "speaks")
    turn.answer.add_spoken("a" * 3000)
    assert [len(entry.text) for entry in turn.record().timeline] == [2000, 2000, 2000]


def test_what_was_the_answer_of_another_turn() -> None:
    """A turn that gives its answer away has nothing of it any more, and the other one has it once."""
    asked, unasked = spoken_turn(), OpenTurn(2, 1, None, Answer(BotTraits()))
    asked.note(1.0, "you", "speaks")
    asked.note(2.0, "bot", "speaks")
    asked.time(user_started=1.0, llm_started=2.0)
    asked.errors.append(ErrorData(message="no credits", fatal=False))
    asked.metrics.append(PipecatMetricsData())
    asked.answer.add_spoken("Welcome.")

    asked.give_answer_to(unasked)

    before, after = asked.record(), unasked.record()
    assert (before.bot_text, before.errors, before.metrics) == ("", (), ())
    assert (after.bot_text, len(after.errors), len(after.metrics)) == ("Welcome.", 1, 1)
    assert (before.timings.user_started, before.timings.llm_started) == (1.0, None)
    assert (after.timings.user_started, after.timings.llm_started) == (None, 2.0)
    assert ([entry.who for entry in before.timeline], [entry.who for entry in after.timeline]) == (["you"], ["bot"])
