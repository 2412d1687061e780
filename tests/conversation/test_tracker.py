"""The tracker in its parts: the questions that wait, a turn while it may change, and whose the bot's output is."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from rtvi_sync import RTVIEvent, RTVIMessage
from rtvi_sync.conversation.answer import Answer, BotTraits, Waits
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.conversation.tracker import OpenTurn, Questions, TurnTracker
from rtvi_sync.protocol.dialects import INBOUND, decode_payload
from rtvi_sync.protocol.session_payloads import ErrorData
from rtvi_sync.protocol.spoken_text import MAX_CHARACTERS
from rtvi_sync.protocol.turn_payloads import PipecatMetricsData

pytestmark = pytest.mark.inside


# -- whose the bot's output is ------------------------------------------------------------------------------------


def new_tracker() -> TurnTracker:
    tracker = TurnTracker()
    tracker.start_session(audio_out=True, version=(2, 2))
    return tracker


def take(tracker: TurnTracker, at: float, type: str, data: Any = None) -> list[TurnRecord]:
    spec = INBOUND[type]
    assert spec.event is not None
    return [turn.record() for turn in tracker.take(spec.event, at, decode_payload(spec, data))]


def ask(tracker: TurnTracker, at: float, id: str) -> list[TurnRecord]:
    message = RTVIMessage("send-text", {"content": "Who?", "options": {}}, id)
    return [turn.record() for turn in tracker.sent(at, message)]


def test_output_that_nobody_asked_for_is_a_turn_of_the_bot() -> None:
    """Output without a question is a turn of the bot, which ends once; later output is another turn."""
    tracker = new_tracker()
    (turn,) = take(tracker, 1.0, "bot-llm-started")
    assert (turn.initiator, turn.modality) == ("bot", None)
    assert take(tracker, 2.0, "bot-llm-text", {"text": "Hello."}) == []
    (ended,) = tracker.end_session(3.0)
    assert (ended.number, ended.status, ended.timings.ended) == (1, "failed", 3.0)
    assert tracker.end_session(4.0) == []
    (other,) = take(tracker, 5.0, "bot-llm-started")
    assert other.number == 2


def test_a_run_of_the_model_answers_the_question_that_the_bot_has() -> None:
    """A run of the model answers a question only once the bot has acknowledged the question."""
    tracker = new_tracker()
    (question,) = ask(tracker, 1.0, "q1")
    (greeting,) = take(tracker, 1.1, "bot-llm-started")
    assert greeting.number != question.number
    take(tracker, 1.2, "user-input", {"text": "Who?", "input_type": "chat", "msg_id": "q1"})
    take(tracker, 1.3, "bot-llm-started")
    answered = tracker.turns[0]
    assert (answered.timings.acknowledged, answered.timings.llm_started) == (1.2, 1.3)


def test_a_bot_that_is_quiet_for_too_long() -> None:
    """A bot that is silent past the limit for its first speech ends its turn, and counts as a bot without a voice."""
    tracker = new_tracker()
    for at, assumed in ((1.0, "waited 3 s for the bot's first speech"), (11.0, None)):
        take(tracker, at, "bot-llm-started")
        take(tracker, at, "bot-llm-text", {"text": "Yes."})
        moments = [tracker.due]
        take(tracker, at, "bot-llm-stopped")
        moments.append(tracker.due)
        assert tracker.pass_time(at + 2.9) == []
        tracker.pass_time(at + 3.0)
        turn = tracker.turns[-1]
        assert (turn.status, turn.assumed) == ("complete", assumed)
        # The second answer owes no speech, because it is known now that this bot has no voice.
        assert moments == [at + Waits().lost, at + Waits().first_speech if assumed else None]


def test_turns_without_an_end_are_ended() -> None:
    """A question that is never answered has failed, and a run whose end is never reported is over, in the end."""
    tracker = new_tracker()
    ask(tracker, 1.0, "q1")
    (asked,) = tracker.pass_time(1.0 + Waits().lost)
    assert asked.status == "failed"
    assert tracker.due is None
    take(tracker, 1000.0, "bot-llm-started")
    take(tracker, 1000.0, "bot-llm-text", {"text": "Yes."})
    (turn,) = tracker.pass_time(1000.0 + Waits().lost)
    assert (turn.status, turn.assumed) == ("complete", "waited 600 s for the bot's current activity to end")


def test_many_questions_are_bounded() -> None:
    """At most 1000 unanswered questions and 100 records of turns are kept."""
    tracker = new_tracker()
    reports = [ask(tracker, float(count), str(count)) for count in range(1100)]
    failed = [turn for report in reports for turn in report if turn.status == "failed"]
    assert [turn.message_id for turn in failed] == [str(count) for count in range(100)]
    assert len(tracker.turns) == 100


# -- a turn while it may change -----------------------------------------------------------------------------------


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
    assert len(record.user_text or "") == MAX_CHARACTERS
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


# -- the questions that wait --------------------------------------------------------------------------------------


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
    assert questions.of_text("Who? Why?") is two  # Pipecat 0.0.108 joins quick speech
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
    """A spoken question goes on unless a text followed it."""
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


def test_what_it_takes() -> None:
    """The tracker takes the events that the table marks as events of turns."""
    assert {*TurnTracker.HANDLERS} == {event for event in RTVIEvent if event.in_turns}
