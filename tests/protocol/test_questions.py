"""Which question the bot has, by its acknowledgements."""

from __future__ import annotations

from typing import Literal

import pytest

from rtvi_sync.protocol.answer import Answer, BotTraits
from rtvi_sync.protocol.open_turn import OpenTurn
from rtvi_sync.protocol.questions import Questions
from rtvi_sync.protocol.session_payloads import ErrorData

pytestmark = pytest.mark.inside


def question(number: int, text: str = "", modality: Literal["text", "audio"] = "text") -> OpenTurn:
    turn = OpenTurn(number, 1, modality, Answer(BotTraits()))
    turn.message_id = str(number)
    if text:
        turn.hear(text, final=True)
    return turn


def questions_of(bot: BotTraits, *turns: OpenTurn) -> Questions:
    questions = Questions(bot)
    for turn in turns:
        questions.add(turn)
    return questions


def test_a_typed_question_is_found_by_its_message_and_its_text() -> None:
    """A typed question is found by its message's id and by its text, even if the bot joins several texts."""
    one, two = question(1, "Who?"), question(2, "Why?")
    questions = questions_of(BotTraits(), one, two)
    assert questions.of_message("2") is two
    assert questions.of_message(None) is None
    assert questions.of_text("why ") is two
    assert questions.of_text("Who? Why?") is two  # Pipecat 0.0.108 joins what comes quickly
    assert questions.before(two) == [one]


def test_the_same_text_again_is_another_question() -> None:
    """A text belongs to the first question that the model does not have yet; joined texts belong to the last one."""
    one, two = question(1, "Why?"), question(2, "Why?")
    questions = questions_of(BotTraits(), one, two)
    assert questions.of_text("Why? Why?") is two
    assert questions.of_text("Why?") is one
    one.told_llm_text = True
    assert questions.of_text("Why?") is two


def test_further_speech_belongs_to_the_last_question() -> None:
    """A spoken question goes on unless a text came after it."""
    spoken, typed = question(1, modality="audio"), question(2, "Why?")
    assert questions_of(BotTraits(), typed, spoken).in_speech is spoken
    assert questions_of(BotTraits(), spoken, typed).in_speech is None


def test_a_question_is_asked_once() -> None:
    """A question that is put first, wherever it was, is the first one, and no other."""
    one, two, three = question(1), question(2), question(3)
    questions = questions_of(BotTraits(), one, two)
    questions.put_first(two)
    questions.put_first(three)
    assert [*questions] == [three, two, one]


def test_a_user_who_speaks_again_is_not_answered_by_an_error() -> None:
    """A question that has an error only has failed, unless the user goes on with it."""
    spoken = question(1, modality="audio")
    questions = questions_of(BotTraits(), spoken)
    failed = [questions.failed]
    spoken.errors.append(ErrorData(message="no credits", fatal=False))
    failed.append(questions.failed)
    spoken.is_speaking = True
    assert [*failed, questions.failed] == [None, spoken, None]


def test_a_question_without_letters_is_found_by_itself_only() -> None:
    """A question without letters is found only by its exact text."""
    thumb, empty, who = question(1, "👍"), question(2), question(3, "Who?")
    questions = questions_of(BotTraits(), question(4, "👎"), thumb, who, empty)
    assert questions.of_text("Who?") is who
    assert questions.of_text(" 👍") is thumb
    assert questions.of_text("Why?") is None
    assert questions.of_text("") is empty


def test_a_text_that_runs_no_model_is_no_question() -> None:
    """A text that runs no model is not found as a question."""
    questions = questions_of(BotTraits(), question(1, "Who?"))
    questions.add_silently("1")
    assert questions.of_message("1") is None


def test_every_message_that_the_bot_acknowledges_by_is_needed() -> None:
    """A question is reached only once the bot has sent every acknowledgement that it is known to send."""
    bot, one = BotTraits(tells_user_input=True), question(1, "Who?")
    questions = questions_of(bot, one)
    reached = [questions.is_first_reached, questions.may_first_be_answered(by_model=True)]
    one.told_input = True
    reached.append(questions.is_first_reached)
    bot.tells_typed = True
    reached.append(questions.is_first_reached)
    one.told_llm_text = True
    reached.append(questions.is_first_reached)
    assert reached == [False, False, True, False, True]


def test_a_bot_that_acknowledges_nothing_may_answer_at_once() -> None:
    """A bot that acknowledges nothing may answer a question at once."""
    questions = questions_of(BotTraits(), question(1, "Who?"))
    assert not questions.is_first_reached
    assert questions.may_first_be_answered(by_model=False)


def test_a_spoken_question_is_reached_at_its_end() -> None:
    """A spoken question is reached when the user has stopped speaking."""
    spoken = question(1, modality="audio")
    questions = questions_of(BotTraits(), spoken)
    spoken.is_speaking = True
    assert not questions.may_first_be_answered(by_model=False)
    spoken.is_speaking = False
    spoken.time(user_stopped_reported=1.0)
    assert questions.is_first_reached
    assert questions.in_speech is spoken


def test_speech_may_be_answered_before_its_end_is_reported() -> None:
    """Models from speech to speech do so; those that get a transcript first do not."""
    bot, spoken = BotTraits(), question(1, modality="audio")
    questions = questions_of(bot, spoken)
    spoken.is_speaking = True
    assert questions.may_first_be_answered(by_model=True)
    bot.tells_spoken = True
    assert not questions.may_first_be_answered(by_model=True)
