"""The pending parts of an answer, as derived from the bot's messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rtvi_sync.conversation.answer import Answer, BotTraits, Waits
from rtvi_sync.protocol.spoken_text import MAX_CHARACTERS
from rtvi_sync.protocol.turn_payloads import BotOutputData, SpokenProgressData

pytestmark = pytest.mark.inside

WAITS = Waits()


def answer_of(*texts: str, has_voice: bool | None = True, aloud: bool = True) -> Answer:
    answer = Answer(BotTraits(has_voice=has_voice), aloud=aloud)
    for text in texts:
        answer.start_run()
        answer.write(text)
        answer.stop_run()
    return answer


def segment(text: str, spoken: str, id: int = 1) -> BotOutputData:
    progress = SpokenProgressData(accumulated_text=spoken, remaining_text=text[len(spoken) :])
    return BotOutputData(text=text, segment_id=id, spoken_status="in-progress", spoken_progress=progress)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (answer_of("Yes."), WAITS.speech),
        (answer_of("Yes.", has_voice=None), WAITS.first_speech),
        (answer_of("Yes.", has_voice=False), None),
        (answer_of("Yes.", aloud=False), None),
        (answer_of(""), WAITS.follow_up),
        (Answer(BotTraits()), WAITS.lost),
    ],
    ids=["speech", "first speech", "no voice", "silent", "empty run", "nothing"],
)
def test_what_is_owed(answer: Answer, seconds: float | None) -> None:
    """The missing part of an answer decides how long the turn waits for it."""
    wait = answer.wait(WAITS)
    assert (wait[0] if wait is not None else None) == seconds


def test_a_bot_that_tells_no_words_has_spoken_what_it_had_written() -> None:
    """A bot that reports no spoken words counts as having spoken its whole text when its speech stops."""
    answer = answer_of("Yes, of course.")
    answer.start_speaking()
    assert answer.is_under_way
    answer.stop_speaking()
    assert answer.wait(WAITS) is None
    assert (answer.spoken_text, answer.spoken_exact) == ("Yes, of course.", None)


def test_words_before_their_speech_are_not_all() -> None:
    """The first progress arrives before the report that the bot speaks."""
    answer = answer_of("Yes.")
    assert answer.knows_segment(segment("Yes.", "Yes."))
    answer.speak_segment(segment("Yes.", "Yes."))
    assert answer.wait(WAITS) is not None
    answer.start_speaking()
    answer.stop_speaking()
    assert answer.wait(WAITS) is None


def test_speech_that_breaks_off() -> None:
    """An answer whose speech breaks off waits for more speech; `spoken_share` counts the spoken part."""
    answer = answer_of("Yes. It is twelve.")
    answer.start_speaking()
    assert answer.speak("Yes.")
    answer.stop_speaking()
    wait = answer.wait(WAITS)
    assert wait is not None
    assert wait[0] == WAITS.more_speech
    assert answer.spoken_share == pytest.approx(3 / 13)


def test_a_function_owes_a_run_and_that_is_spoken() -> None:
    """When a function call has ended, the answer waits for another run of the model, and then for its speech."""
    answer = Answer(BotTraits(has_voice=True), aloud=False)
    answer.start_run()
    answer.call(1.0, "get")
    answer.call(1.1, "get", "7", {"a": 1})
    answer.stop_run()
    assert (answer.is_under_way, answer.owes_run) == (True, False)
    answer.end_call(2.0, "7", result=12)
    assert (answer.is_under_way, answer.owes_run) == (False, True)
    answer.start_run()
    answer.write("Twelve.")
    answer.stop_run()
    assert answer.owes_speech
    (call,) = answer.calls
    assert (call.tool_call_id, call.arguments, call.result, call.started, call.stopped) == ("7", {"a": 1}, 12, 1.0, 2.0)


def test_a_cancelled_function_owes_no_run() -> None:
    """An answer waits for no run of the model after a cancelled function call."""
    answer = Answer(BotTraits())
    answer.call(1.0, "get", "7")
    answer.end_call(2.0, "7", cancelled=True)
    assert not answer.owes_run
    assert answer.calls[0].cancelled


def test_the_end_of_a_run_that_is_told_twice() -> None:
    """A run's end that is reported twice ends the next run early; the text of that run resumes it."""
    answer = answer_of("Yes.")
    answer.start_run()
    answer.stop_run()
    assert answer.owes_run
    answer.write("No.")
    assert (answer.running, answer.owes_run) == (True, False)
    answer.stop_run()
    assert (answer.text, answer.owes_run) == ("Yes. No.", False)


def test_the_end_of_a_run_that_is_told_again_when_none_runs() -> None:
    """The second end of a run announces no other run."""
    answer = answer_of("Yes.")
    answer.stop_run()
    assert (answer.running, answer.owes_run) == (False, False)


def test_the_end_of_a_function_that_is_told_again() -> None:
    """The second end of a call, reported by the client or the bot, changes no times and leaves no run pending."""
    answer = Answer(BotTraits())
    answer.call(1.0, "get", "7")
    answer.end_call(2.0, "7", result=12)
    answer.start_run()
    answer.write("Twelve.")
    answer.stop_run()
    answer.end_call(3.0, "7")
    (call,) = answer.calls
    assert (call.stopped, call.result, answer.owes_run) == (2.0, 12, False)


def test_a_function_that_took_too_long_for_a_bot_that_tells_interruptions() -> None:
    """The model is told of a function that was cancelled without an interruption, and runs again."""
    answer = Answer(BotTraits(version=(2, 0)))
    answer.call(1.0, "get", "7")
    answer.end_call(2.0, "7", cancelled=True)
    assert (answer.owes_run, answer.is_cancelled) == (True, True)
    answer.start_run()
    assert (answer.owes_run, answer.is_cancelled) == (False, False)


@pytest.mark.parametrize(
    "go_on",
    [Answer.start_speaking, Answer.start_run, lambda answer: answer.add_spoken("Well,")],
    ids=["speech", "run", "words"],
)
def test_an_answer_that_goes_on_was_not_cut(go_on: Callable[[Answer], object]) -> None:
    """After a function was cancelled, whatever the bot does next shows that its answer goes on."""
    answer = Answer(BotTraits())
    answer.call(1.0, "get", "7")
    answer.end_call(2.0, "7", cancelled=True)
    go_on(answer)
    assert not answer.is_cancelled


def test_a_call_keeps_its_arguments() -> None:
    """A later message of a call may have less than the one before."""
    answer = Answer(BotTraits())
    answer.call(1.0, "get", "7", {"a": 1})
    answer.call(1.1, None, "7")
    (call,) = answer.calls
    assert (call.function_name, call.arguments, call.started) == ("get", {"a": 1}, 1.0)


def test_a_hundred_calls_are_kept() -> None:
    """Of more calls the first hundred are known."""
    answer = Answer(BotTraits())
    for count in range(102):
        answer.call(1.0, "get", str(count))
    assert [call.tool_call_id for call in answer.calls] == [str(count) for count in range(100)]


def test_words_once_are_words() -> None:
    """A bot that has told single words tells by the word, though it tells several at once, too."""
    answer = answer_of("Yes, of course.")
    assert answer.speak("Yes,")
    assert answer.speak("of course.")
    assert answer.spoken_exact == "word"


def test_a_million_characters_are_kept() -> None:
    """Data of a turn have exactly the documented room, and refused data takes none of it."""
    answer = Answer(BotTraits())
    room = 1_000_000
    assert answer.keeps("a" * (room - 2 - 8))  # with the quotes of its repr
    assert not answer.keeps("a" * 7)
    assert answer.keeps("a" * 6)
    assert not answer.keeps(0)


def test_a_filler_that_goes_on_when_the_model_writes_already() -> None:
    """A filler's late words stay together, before the text that the model already writes."""
    answer = answer_of("")
    answer.add_spoken("One")
    answer.start_speaking()
    answer.start_run()
    answer.write("It is twelve.")
    for words in ("moment", "please.", "It", "is", "twelve."):
        if not answer.speak(words):
            answer.add_spoken(words)
    assert answer.text == "One moment please. It is twelve."


def test_a_filler_that_is_told_when_it_was_spoken() -> None:
    """A filler that is reported only when it was spoken precedes the text that the model has written."""
    answer = answer_of("It is twelve.")
    answer.start_speaking()
    assert not answer.speak("One moment.")
    answer.add_spoken("One moment.")
    assert answer.text == "One moment. It is twelve."


def test_the_text_of_all_runs_is_bounded() -> None:
    """A run that brings nothing because of that is none without text: it is no call that the bot does not report."""
    answer = answer_of(*["a" * MAX_CHARACTERS] * 3, has_voice=False)
    answer.add_spoken("more")
    answer.add_segment(segment("even more", ""))
    assert len(answer.text) == MAX_CHARACTERS - 1  # the blank after the first run
    assert answer.wait(WAITS) is None


def test_many_parts_are_bounded() -> None:
    """An answer of many segments keeps at most `MAX_CHARACTERS` of text."""
    answer = Answer(BotTraits())
    for count in range(1200):
        answer.add_segment(segment("a" * 200, "", count))
    assert len(answer.text) <= MAX_CHARACTERS


def test_what_is_kept_of_functions_is_bounded() -> None:
    """The names, arguments and results that an answer keeps of its function calls are limited in size."""
    answer = Answer(BotTraits())
    answer.call(1.0, "first", "1", {"a": "a" * 600_000})
    answer.call(1.0, "second", "2", {"a": "a" * 600_000})
    answer.call(1.0, "a" * 600_000, "3")
    answer.end_call(2.0, "1", result="a" * 600_000)
    answer.end_call(2.0, "2", result="a")
    first, second = answer.calls
    assert first.arguments is not None
    assert (first.result, second.arguments, second.result, second.stopped) == (None, None, "a", 2.0)
