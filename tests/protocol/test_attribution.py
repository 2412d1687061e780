"""Whose the bot's output is."""

from __future__ import annotations

import pytest

from rtvi_sync.protocol.answer import Waits
from rtvi_sync.protocol.attribution import Attribution

pytestmark = pytest.mark.inside


def attribution() -> Attribution:
    turns = Attribution(Waits())
    turns.begin_session(audio_out=True, version=(2, 2))
    return turns


def test_output_that_nobody_asked_for_is_a_turn_of_the_bot() -> None:
    """Output without a question is a turn of the bot, which ends once; later output is another turn."""
    turns = attribution()
    turn = turns.answer(1.0)
    assert turn.modality is None
    assert turns.answer(2.0) is turn
    turns.end(turn, 3.0, "complete")
    turns.end(turn, 4.0, "failed")
    assert [(record.status, record.timings.ended) for record in turns.changes()] == [("complete", 3.0)]
    assert turns.changes() == []
    assert turns.answer(5.0) is not turn


def test_a_run_of_the_model_answers_the_question_that_the_bot_has() -> None:
    """A run of the model answers a question only once the bot has acknowledged the question."""
    turns = attribution()
    question = turns.begin("text")
    turns.ask(question, 1.0)
    assert turns.answer(1.1, by_model=True) is not question
    question.told_input = True
    turns.acknowledge(1.2, question)
    assert turns.answer(1.3, by_model=True) is question
    assert question.timings.acknowledged == 1.2


def test_a_bot_that_is_quiet_for_too_long() -> None:
    """A bot that is silent past the limit for its first speech ends its turn, and counts as a bot without a voice."""
    turns = attribution()
    turn = turns.answer(1.0, by_model=True)
    turn.answer.start_run()
    turn.answer.write("Yes.")
    moments = [turns.due]
    turn.answer.stop_run()
    moments.append(turns.due)
    assert moments == [1.0 + Waits().lost, 1.0 + Waits().first_speech]
    turns.pass_time(3.9)
    assert turn.status == "in_progress"
    turns.pass_time(4.0)
    assert turn.assumed == "waited 3 s for the bot's first speech"
    assert turns.bot.has_voice is False


def test_what_has_no_end_is_ended() -> None:
    """A question that is never answered has failed, and a run whose end is never told is over, in the end."""
    turns = attribution()
    asked = turns.begin("text")
    turns.ask(asked, 1.0)
    turns.pass_time(1.0 + Waits().lost)
    assert asked.status == "failed"
    assert turns.due is None
    turn = turns.answer(1000.0, by_model=True)
    turn.answer.start_run()
    turn.answer.write("Yes.")
    turns.pass_time(1000.0 + Waits().lost)
    assert (turn.status, turn.assumed) == ("complete", "waited 600 s for what is under way to end")


def test_many_questions_are_bounded() -> None:
    """At most 1000 unanswered questions and 100 records of turns are kept."""
    turns = attribution()
    for count in range(1100):
        turns.ask(turns.begin("text"), float(count))
    assert len(turns.asked) == 1000
    assert len(turns.records) == 100
