"""Which question an answer belongs to, and when it is complete, by the messages that bots send."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rtvi_sync import RTVIMessage
from rtvi_sync.conversation.answer import Waits
from rtvi_sync.conversation.record import TurnRecord
from rtvi_sync.conversation.tracker import OpenTurn, TurnTracker
from rtvi_sync.protocol.dialects import INBOUND, Version, decode_payload

pytestmark = pytest.mark.inside


class Conversation:
    """A tracker that is told messages, one a tenth of a second."""

    def __init__(self, version: Version | None = (2, 2), *, audio_out: bool = True) -> None:
        self.tracker = TurnTracker()
        self.tracker.start_session(audio_out=audio_out, version=version)
        self.now = 100.0
        self.over: list[TurnRecord] = []

    def _took(self, turns: list[OpenTurn]) -> None:
        self.over += [turn.record() for turn in turns if turn.is_over]
        self.now += 0.1

    def bot(self, type: str, data: Any = None) -> None:
        spec = INBOUND[type]
        assert spec.event is not None
        self._took(self.tracker.take(spec.event, self.now, decode_payload(spec, data)))

    def ask(self, text: str, id: str = "q1", **options: Any) -> None:
        data = {"content": text, "options": {"run_immediately": True, **options}}
        self._took(self.tracker.sent(self.now, RTVIMessage("send-text", data, id)))

    def acknowledge(self, text: str, id: str = "q1") -> None:
        self.bot("user-input", {"text": text, "input_type": "chat", "msg_id": id})
        self.bot("user-llm-text", {"text": text})

    def run(self, *tokens: str) -> None:
        self.bot("bot-llm-started")
        for token in tokens:
            self.bot("bot-llm-text", {"text": token})
        self.bot("bot-llm-stopped")

    def progress(self, text: str, spoken: str, segment: int = 1) -> None:
        rest = text[len(spoken) :]
        self.bot(
            "bot-output",
            {
                "text": text,
                "aggregated_by": "sentence",
                "segment_id": segment,
                "will_be_spoken": True,
                "spoken_status": "in-progress" if rest else "completed",
                "spoken_progress": {"accumulated_text": spoken, "remaining_text": rest},
            },
        )

    def say(self, text: str, segment: int = 1) -> None:
        """Speak a text, word by word, as bots of 2.x report it: the first word before the speech."""
        words = text.split(" ")
        self.progress(text, words[0], segment)
        self.bot("bot-started-speaking")
        for count in range(1, len(words) + 1):
            self.progress(text, " ".join(words[:count]), segment)
        self.bot("bot-stopped-speaking")

    def wait(self) -> float:
        """Let the time pass until something is due; return how long that took after the last message."""
        due = self.tracker.due
        assert due is not None
        waited = due - self.now + 0.1
        self.now = due
        self._took(self.tracker.pass_time(due))
        return waited


def test_a_typed_question() -> None:
    """A typed question has one turn, which is complete when the answer was written and spoken."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.acknowledge("Hi?")
    talk.run("Hello", " you ", "there.")
    assert not talk.over
    talk.say("Hello you there.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text, turn.spoken_text) == ("Hi?", "Hello you there.", "Hello you there.")
    assert (turn.status, turn.assumed, turn.spoken_exact, turn.modality) == ("complete", None, "word", "text")
    assert talk.tracker.due is None


@pytest.mark.parametrize("told", [True, False])
def test_a_file(told: bool) -> None:
    """No bot acknowledges a file by `user-input`, though it does so for texts."""
    seen = Conversation()
    seen.tracker.sent(seen.now, RTVIMessage("send-file", {"content": "What is this?", "file": {}}, "q1"))
    if told:
        seen.bot("user-llm-text", {"text": "What is this?"})
    seen.run("A dog.")
    seen.say("A dog.")
    (turn,) = seen.over
    assert (turn.message_id, turn.bot_text, turn.status) == ("q1", "A dog.", "complete")


def test_a_function_with_a_filler_is_one_turn() -> None:
    """A function call, its filler and the answer are one turn."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    talk.bot("llm-function-call-started", {"function_name": "get"})
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get", "arguments": {"a": 1}})
    talk.bot("bot-llm-stopped")
    talk.progress("One moment.", "One", 7)
    talk.bot("bot-started-speaking")
    talk.progress("One moment.", "One moment.", 7)
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "result": 12})
    talk.bot("bot-stopped-speaking")
    assert not talk.over
    talk.run("It is ", "12.")
    talk.say("It is 12.", 8)
    (turn,) = talk.over
    assert turn.bot_text == "One moment. It is 12."
    (call,) = turn.function_calls
    assert (call.function_name, call.arguments, call.result) == ("get", {"a": 1}, 12)


def test_a_greeting_that_the_first_question_cuts() -> None:
    """The rest of the greeting after the question is not the answer, even if this bot has not acknowledged any text
    yet.
    """
    talk = Conversation((2, 0))
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    talk.bot("user-llm-text", {"text": "Hi?"})
    talk.run("Hello.")
    talk.say("Hello.")
    assert [(turn.user_text, turn.bot_text, turn.status) for turn in talk.over] == [
        ("", "", "interrupted"),
        ("Hi?", "Hello.", "complete"),
    ]


@pytest.mark.parametrize("speaks_early", [False, True], ids=["in order", "speech before its run"])
def test_a_greeting_that_a_question_cut_before_it_was_told(speaks_early: bool) -> None:
    """A bot of Pipecat 1.14 under load reports the cut speech after the interruption.

    The answer's speech may be reported before the question, too, and still belongs to the answer.
    """
    talk = Conversation()
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.run("Hello! Ask me.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    (greeting,) = talk.over
    assert (greeting.initiator, greeting.status, greeting.spoken_text) == ("bot", "interrupted", "")
    if speaks_early:
        talk.bot("bot-started-speaking")
    talk.acknowledge("Hi?")
    talk.run("Good day.")
    if not speaks_early:
        talk.bot("bot-started-speaking")
    talk.progress("Good day.", "Good day.")
    talk.bot("bot-stopped-speaking")
    (_, answer) = talk.over
    assert (answer.initiator, answer.status, answer.spoken_text) == ("user", "complete", "Good day.")
    assert answer.timings.bot_started_speaking is not None


def test_speech_of_what_was_cut_is_not_that_of_the_next_question() -> None:
    """Speech of an answer that was cut does not count as speech of the next question's answer."""
    talk = Conversation((2, 2))
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.bot("bot-started-speaking")
    talk.ask("Two?", "q2")
    talk.bot("bot-interrupted")
    talk.acknowledge("Two?", "q2")
    talk.run("Second.")
    talk.bot("bot-stopped-speaking")
    began = talk.now
    talk.say("Second.")
    assert [(turn.user_text, turn.status) for turn in talk.over] == [("Hi?", "interrupted"), ("Two?", "complete")]
    assert (talk.over[1].timings.bot_started_speaking or 0.0) >= began


def test_speech_that_began_before_the_question_was_told_and_ends_before_its_answer_is_spoken() -> None:
    """Speech that started before the question's acknowledgement does not end the turn when it stops."""
    talk = Conversation((2, 2))
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.bot("bot-started-speaking")
    talk.acknowledge("Hi?")
    talk.run("Hello.")
    talk.bot("bot-stopped-speaking")
    assert not talk.over
    talk.say("Hello.")
    assert [(turn.user_text, turn.status) for turn in talk.over] == [("Hi?", "complete")]


@pytest.mark.parametrize("sentences", [["Hello."], ["Hello there, my friend.", "How are you?"]])
def test_a_greeting_that_is_told_after_an_interruption_and_spoken_whole(sentences: list[str]) -> None:
    """A greeting whose run started after the question's interruption was not cut: its turn is complete."""
    talk = Conversation((2, 2))
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.run(" ".join(sentences))
    for number, sentence in enumerate(sentences):
        talk.say(sentence, number)
    (greeting,) = talk.over
    assert (greeting.initiator, greeting.status, greeting.spoken_text) == ("bot", "complete", " ".join(sentences))


def test_words_of_a_greeting_that_the_first_question_cuts() -> None:
    """The question caused the interruption, and the text before it cannot be the answer."""
    talk = Conversation((2, 0))
    talk.ask("Hi?")
    talk.progress("Welcome to the shop.", "Welcome", 7)
    talk.bot("bot-started-speaking")
    talk.bot("bot-interrupted")
    talk.bot("bot-stopped-speaking")
    talk.bot("user-llm-text", {"text": "Hi?"})
    talk.run("Hello.")
    talk.say("Hello.")
    assert [(turn.user_text, turn.spoken_text, turn.status) for turn in talk.over] == [
        ("", "Welcome", "interrupted"),
        ("Hi?", "Hello.", "complete"),
    ]


def test_speech_after_an_interruption_by_a_question_that_is_not_acknowledged_yet() -> None:
    """Speech between a question's interruption and its acknowledgement is not the answer."""
    talk = Conversation((2, 2))
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    talk.acknowledge("Hi?")
    talk.run("Hello.")
    talk.say("Hello.")
    assert [(turn.user_text, turn.bot_text) for turn in talk.over] == [("Hi?", "Hello.")]


def test_a_bot_that_only_speaks_is_waited_for_once() -> None:
    """The client waits for the acknowledgement of a bot that only speaks in the first turn only."""
    talk = Conversation((1, 2))
    waited = []
    for count in range(2):
        talk.ask("Hi?", str(count))
        talk.bot("bot-started-speaking")
        talk.bot("bot-stopped-speaking")
        if talk.tracker.due is not None:
            waited.append(talk.wait())
    assert waited == [pytest.approx(Waits().acknowledgement)]
    assert [turn.status for turn in talk.over] == ["complete", "complete"]


def test_a_text_that_is_typed_while_the_user_speaks() -> None:
    """A text that is typed while the user speaks is answered first, and the speech afterwards."""
    talk = Conversation((1, 2))
    talk.bot("user-started-speaking")
    talk.ask("Hi?")
    talk.bot("user-llm-text", {"text": "Hi?"})
    talk.run("Hello.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    talk.bot("user-stopped-speaking")
    talk.bot("user-transcription", {"text": "Good bye.", "final": True})
    talk.bot("user-llm-text", {"text": "Good bye."})
    talk.run("Bye.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    answers = [(turn.user_text, turn.bot_text, turn.status) for turn in talk.over]
    assert answers == [("Hi?", "Hello.", "complete"), ("Good bye.", "Bye.", "complete")]


def test_a_cancelled_function_is_an_interrupted_answer() -> None:
    """Bots before 2.0 tell no interruption."""
    talk = Conversation((1, 2))
    talk.ask("Weather?")
    talk.bot("user-llm-text", {"text": "Weather?"})
    talk.bot("bot-llm-started")
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("bot-llm-stopped")
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "cancelled": True})
    assert [turn.status for turn in talk.over] == ["interrupted"]


@pytest.mark.parametrize("is_last", [True, False])
def test_a_function_that_took_too_long(is_last: bool) -> None:
    """A function call that took too long is cancelled, and the answer is the run in which the model says so."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    for number in ("1", "2"):
        talk.bot("llm-function-call-in-progress", {"tool_call_id": number, "function_name": "get"})
    talk.bot("bot-llm-stopped")
    for number, cancelled in (("1", not is_last), ("2", is_last)):
        talk.bot("llm-function-call-stopped", {"tool_call_id": number, "function_name": "get", "cancelled": cancelled})
    talk.run("Sorry, that took too long.")
    talk.say("Sorry, that took too long.")
    (turn,) = talk.over
    assert (turn.status, turn.assumed, turn.bot_text) == ("complete", None, "Sorry, that took too long.")
    assert [call.cancelled for call in turn.function_calls] == [not is_last, is_last]


@pytest.mark.parametrize("then", ["tells", "waits", "ends"])
def test_a_cancelled_function_that_the_model_is_not_told_of(then: str) -> None:
    """The answer was interrupted, whether the bot says so, does nothing more, or ends the session."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("bot-llm-stopped")
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "cancelled": True})
    assert not talk.over
    if then == "tells":
        talk.bot("bot-interrupted")
    elif then == "ends":
        talk._took(talk.tracker.end_session(talk.now))
    else:
        assert talk.wait() == pytest.approx(Waits().follow_up)
    assert [(turn.status, turn.assumed) for turn in talk.over] == [("interrupted", None)]


@pytest.mark.parametrize("as_segment", [True, False])
def test_a_function_that_took_too_long_without_a_model(as_segment: bool) -> None:
    """The bot's speech about it is the answer, even without the report of a model's run."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "cancelled": True})
    if as_segment:
        talk.say("That took too long.")
    else:
        talk.bot("bot-started-speaking")
        talk.bot("bot-tts-text", {"text": "That took too long."})
        talk.bot("bot-stopped-speaking")
    assert talk.wait() == pytest.approx(Waits().follow_up)
    assert [(turn.status, turn.bot_text) for turn in talk.over] == [("complete", "That took too long.")]


def test_a_bot_that_does_not_tell_when_it_speaks() -> None:
    """Pipecat's observer can be told so. After one wait it is known, and its words tell when an answer is over."""
    talk = Conversation()
    for number in range(3):
        talk.ask("Hi?", f"q{number}")
        talk.acknowledge("Hi?", f"q{number}")
        talk.run("Hello you.")
        talk.progress("Hello you.", "Hello", number)
        assert len(talk.over) == number
        talk.progress("Hello you.", "Hello you.", number)
        if not number:
            assert talk.wait() == pytest.approx(Waits().first_speech)
    assert [turn.status for turn in talk.over] == ["complete"] * 3
    assert [turn.assumed for turn in talk.over] == ["waited 3 s for the bot's first speech", None, None]
    talk.ask("Hi?", "q4")
    talk.acknowledge("Hi?", "q4")
    talk.run("Hello you.")
    talk.bot("bot-started-speaking")  # it does tell
    talk.progress("Hello you.", "Hello you.", 4)
    assert len(talk.over) == 3
    talk.bot("bot-stopped-speaking")
    assert len(talk.over) == 4


def test_a_bot_that_does_not_tell_when_it_speaks_nor_all_of_its_words() -> None:
    """Any word that was spoken shows that it has a voice."""
    talk = Conversation()
    for number, wait in enumerate((Waits().first_speech, Waits().more_speech)):
        talk.ask("Hi?", f"q{number}")
        talk.acknowledge("Hi?", f"q{number}")
        talk.run("Hello you. 1234567890")
        talk.progress("Hello you.", "Hello you.", number)
        assert len(talk.over) == number
        assert talk.wait() == pytest.approx(wait)
    talk.ask("Hi?", "q3")
    talk.acknowledge("Hi?", "q3")
    talk.run("Hello you.")
    assert len(talk.over) == 2
    talk.progress("Hello you.", "Hello you.", 3)
    assert len(talk.over) == 3


@pytest.mark.parametrize("tells_words", [None, False])
def test_an_answer_that_stops_when_the_user_has_begun(tells_words: bool | None) -> None:
    """Bots before 2.0 tell no interruption, and a sentence at its end: an answer cut in its first one has no words.

    Of a bot that has spoken without telling words before, that says nothing.
    """
    talk = Conversation((1, 2))
    if tells_words is False:
        talk.run("Welcome.")
        talk.bot("bot-started-speaking")
        talk.bot("bot-stopped-speaking")
    talk.ask("Story?")
    talk.bot("user-llm-text", {"text": "Story?"})
    talk.run("There was a king.")
    talk.bot("bot-started-speaking")
    talk.bot("user-started-speaking")
    talk.bot("bot-stopped-speaking")
    turn = talk.over[-1]
    cut, whole = ("interrupted", ""), ("complete", "There was a king.")
    assert (turn.status, turn.spoken_text) == (cut if tells_words is None else whole)


def test_two_quick_questions_are_answered_one_after_the_other() -> None:
    """`bot-interrupted` acknowledges nothing: the first answer is that to the first question."""
    talk = Conversation()
    talk.ask("One?", "a")
    talk.bot("bot-interrupted")
    talk.ask("Two?", "b")
    talk.bot("bot-interrupted")
    talk.acknowledge("One?", "a")
    talk.run("First.")
    talk.say("First.")
    talk.acknowledge("Two?", "b")
    talk.run("Second.")
    talk.say("Second.", 2)
    assert [(turn.user_text, turn.bot_text) for turn in talk.over] == [("One?", "First."), ("Two?", "Second.")]


def test_a_greeting_is_a_turn_of_the_bot() -> None:
    """A greeting is a turn that the bot started."""
    talk = Conversation()
    talk.progress("Hello, welcome.", "Hello,")
    talk.bot("bot-started-speaking")
    talk.progress("Hello, welcome.", "Hello, welcome.")
    talk.bot("bot-stopped-speaking")
    (turn,) = talk.over
    assert (turn.initiator, turn.bot_text, turn.modality) == ("bot", "Hello, welcome.", None)


def test_a_greeting_that_a_question_interrupts() -> None:
    """The late words and the late end of a greeting that a question interrupted belong to the greeting."""
    talk = Conversation()
    talk.progress("Hello, welcome to you.", "Hello,")
    talk.bot("bot-started-speaking")
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.acknowledge("Hi?")
    talk.progress("Hello, welcome to you.", "Hello, welcome")
    talk.bot("bot-stopped-speaking")
    talk.run("Yes.")
    talk.say("Yes.", 2)
    assert [(turn.initiator, turn.status, turn.bot_text, turn.spoken_text) for turn in talk.over] == [
        ("bot", "interrupted", "Hello, welcome to you.", "Hello,"),
        ("user", "complete", "Yes.", "Yes."),
    ]


@pytest.mark.parametrize("late", ["text", "function"])
def test_what_the_model_tells_after_an_interruption(late: str) -> None:
    """Text and function calls that arrive after an interruption belong to the interrupted turn."""
    talk = Conversation()
    talk.ask("Story?", "a")
    talk.acknowledge("Story?", "a")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-text", {"text": "There was"})
    talk.ask("Stop.", "b")
    talk.bot("bot-interrupted")
    if late == "text":
        talk.bot("bot-llm-text", {"text": " a king"})
    else:
        talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.acknowledge("Stop.", "b")
    talk.run("Yes.")
    talk.say("Yes.")
    assert [(turn.user_text, turn.bot_text) for turn in talk.over] == [("Story?", "There was"), ("Stop.", "Yes.")]


def test_a_function_before_any_run_of_the_model() -> None:
    """Models from speech to speech call it first: it belongs to the question that the bot has."""
    talk = Conversation()
    talk.run("Welcome.")
    talk.say("Welcome.")
    talk.bot("user-started-speaking")
    talk.bot("bot-interrupted")
    talk.bot("user-stopped-speaking")
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "result": 12})
    talk.run("It is 12.")
    talk.say("It is 12.", 2)
    _, turn = talk.over
    assert (turn.initiator, turn.bot_text, turn.function_calls[0].result) == ("user", "It is 12.", 12)


def test_a_word_of_a_filler_that_was_interrupted() -> None:
    """With RTVI 1.2 the word arrives after the next answer has started; the announcement shows whose it is."""
    talk = Conversation((1, 2))
    for number, question in enumerate(("Weather?", "Stop.")):
        talk.ask(question, question)
        talk.bot("user-llm-text", {"text": question})
        talk.run(*["Yes."] * number)
        if number == 0:
            talk.bot("bot-output", {"text": "Let me look at that.", "spoken": False})
            talk.bot("bot-started-speaking")
            for word in ("Let", "me"):
                talk.bot("bot-output", {"text": word, "spoken": True})
    talk.bot("bot-output", {"text": "look", "spoken": True})
    talk.bot("bot-output", {"text": "Yes.", "spoken": False})
    talk.bot("bot-started-speaking")
    talk.bot("bot-output", {"text": "Yes.", "spoken": True})
    talk.bot("bot-stopped-speaking")
    assert [(turn.bot_text, turn.spoken_text) for turn in talk.over] == [("Let me", "Let me"), ("Yes.", "Yes.")]


def test_an_answer_that_was_that_to_something_else() -> None:
    """The times of the speech that was mistaken for the answer, and its lines in the timeline, do not belong to the
    question.
    """
    talk = Conversation((2, 0))
    talk.ask("Hi?")
    talk.progress("Hello, welcome.", "Hello,")
    talk.bot("bot-started-speaking")
    talk.progress("Hello, welcome.", "Hello, welcome.")
    talk.bot("user-llm-text", {"text": "Hi?"})
    asked = talk.now
    talk.bot("bot-stopped-speaking")
    talk.run("Yes.")
    talk.say("Yes.", 2)
    greeting, turn = sorted(talk.over, key=lambda turn: turn.initiator)
    assert (greeting.bot_text, turn.bot_text) == ("Hello, welcome.", "Yes.")
    assert (greeting.timings.bot_started_speaking or 0) < asked
    assert (turn.timings.bot_started_speaking or 0) > asked
    assert [entry.text for entry in greeting.timeline if entry.kind == "speaks"] == ["Hello, welcome."]
    assert [entry.text for entry in turn.timeline if entry.kind == "speaks"] == ["Yes."]


def test_the_timeline_quotes_what_was_said() -> None:
    """Each speech has its words, the first of which arrives before it; calls have their arguments and results."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    call = {"tool_call_id": "1", "function_name": "get"}
    talk.bot("llm-function-call-in-progress", {**call, "arguments": {"at": "sky"}})
    talk.bot("bot-llm-stopped")
    talk.say("One moment.", 7)
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "result": {"sky": "grey"}})
    talk.run("It is grey.")
    talk.say("It is grey.", 8)
    (turn,) = talk.over
    assert [(entry.kind, entry.text) for entry in turn.timeline if entry.who == "bot" and entry.text] == [
        ("calls", 'get({"at": "sky"})'),
        ("speaks", "One moment."),
        ("returned", 'get {"sky": "grey"}'),
        ("speaks", "It is grey."),
    ]


def test_a_text_only_bot_is_waited_for_once() -> None:
    """The client waits for the speech of a text-only bot in the first turn only."""
    talk = Conversation()
    for number, text in enumerate(("One?", "Two?"), 1):
        talk.ask(text, text)
        talk.acknowledge(text, text)
        talk.run("Yes.")
        if number == 1:
            assert talk.wait() == pytest.approx(3.0)
    first, second = talk.over
    assert first.assumed == "waited 3 s for the bot's first speech"
    assert second.assumed is None


def test_an_empty_run_is_an_unreported_function() -> None:
    """An empty run counts as an unreported function call, so that the turn waits for another run."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.run()
    assert not talk.over
    talk.run("Fine.")
    talk.say("Fine.")
    assert [turn.bot_text for turn in talk.over] == ["Fine."]


def test_an_error_explains_an_empty_run() -> None:
    """An error after an empty run ends the turn, which then has no text."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.run()
    talk.bot("error", {"error": "no credits", "fatal": False})
    (turn,) = talk.over
    assert (turn.bot_text, [error.message for error in turn.errors]) == ("", ["no credits"])


def test_a_greeting_by_the_model_of_a_bot_that_acknowledges_later() -> None:
    """A greeting that was taken for the answer is a turn of the bot once the bot acknowledges the question."""
    talk = Conversation((1, 2))
    talk.ask("Hi?")
    talk.run("Welcome.")
    talk.bot("bot-started-speaking")
    talk.bot("user-llm-text", {"text": "Hi?"})
    talk.run("Yes.")
    talk.bot("bot-stopped-speaking")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Yes."})
    talk.bot("bot-stopped-speaking")
    assert [(turn.initiator, turn.bot_text) for turn in talk.over] == [("bot", "Welcome."), ("user", "Yes.")]


def test_a_bot_that_is_configured_to_tell_no_user_input() -> None:
    """Pipecat 1.13 and 1.14 with `RTVIObserverParams(user_input_enabled=False)`, and other servers of RTVI 2.2."""
    talk = Conversation(audio_out=False)
    for text in ("Hi?", "And you?"):
        talk.ask(text, text)
        talk.bot("bot-interrupted")
        talk.bot("user-llm-text", {"text": text})
        talk.run("Fine.")
    assert [(turn.user_text, turn.bot_text, turn.status) for turn in talk.over] == [
        ("Hi?", "Fine.", "complete"),
        ("And you?", "Fine.", "complete"),
    ]


def test_what_is_said_to_a_bot_that_is_configured_to_tell_no_user_input() -> None:
    """The transcript is the user's text if the bot is configured to report no user input."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    talk.bot("user-transcription", {"text": "What is it?", "final": True})
    talk.bot("user-stopped-speaking")
    talk.run("A bot.")
    talk.say("A bot.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text) == ("What is it?", "A bot.")


def test_a_greeting_by_the_model_before_the_first_user_input() -> None:
    """A run of the model before the first user input is a greeting, and the run after it the answer."""
    talk = Conversation(audio_out=False)
    talk.ask("Hi?")
    talk.run("Welcome.")
    talk.acknowledge("Hi?")
    talk.run("Yes.")
    assert [(turn.initiator, turn.bot_text) for turn in talk.over] == [("bot", "Welcome."), ("user", "Yes.")]


def test_a_spoken_question() -> None:
    """A spoken question has one turn, with its final transcript and the answer."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    talk.bot("user-transcription", {"text": "What", "final": False})
    talk.bot("user-input", {"text": "What is it", "input_type": "transcription", "final": False})
    talk.bot("user-input", {"text": "What is it?", "input_type": "transcription", "final": True})
    talk.bot("user-llm-text", {"text": "What is it?"})
    talk.bot("user-stopped-speaking")
    talk.run("A bot.")
    talk.say("A bot.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text, turn.modality) == ("What is it?", "A bot.", "audio")


def hear(talk: Conversation, text: str) -> None:
    """Report the user's speech, to the model as well."""
    talk.bot("user-input", {"text": text, "input_type": "transcription", "final": True})
    talk.bot("user-llm-text", {"text": text})


def test_a_model_that_decides_that_the_user_has_finished() -> None:
    """The model runs before the bot reports the end of the user's speech: `user-llm-text` acknowledges the question."""
    talk = Conversation()
    for question, number in (("What is it?", 1), ("And that?", 2)):
        talk.bot("user-started-speaking")
        talk.bot("bot-interrupted")
        hear(talk, question)
        talk.bot("bot-llm-started")
        talk.bot("user-stopped-speaking")
        talk.bot("bot-llm-text", {"text": f"A bot {number}."})
        talk.bot("bot-llm-stopped")
        talk.say(f"A bot {number}.", number)
    answers = [(turn.user_text, turn.bot_text, turn.status) for turn in talk.over]
    assert answers == [("What is it?", "A bot 1.", "complete"), ("And that?", "A bot 2.", "complete")]
    assert all(turn.timings.user_stopped_reported is not None for turn in talk.over)


def test_a_model_that_calls_a_function_before_the_end_of_speech_is_reported() -> None:
    """A function call that the model makes before the end of speech is reported belongs to the user's turn."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "Weather?")
    talk.bot("bot-llm-started")
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("bot-llm-stopped")
    talk.bot("user-stopped-speaking")
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "result": 12})
    talk.run("It is 12.")
    talk.say("It is 12.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text, turn.function_calls[0].result) == ("Weather?", "It is 12.", 12)


@pytest.mark.parametrize("is_early", [False, True], ids=["after the run", "during the run"])
def test_a_model_that_finds_the_user_not_finished(is_early: bool) -> None:
    """A run without text does not end the turn while the user speaks; the user's further words belong to the turn."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "I would like")
    talk.bot("bot-llm-started")
    if is_early:
        talk.bot("user-input", {"text": "a", "input_type": "transcription", "final": False})
    talk.bot("bot-llm-stopped")
    assert talk.tracker.due is not None
    assert talk.tracker.due > talk.now + 60
    hear(talk, "a coffee.")
    talk.bot("bot-llm-started")
    started = talk.now
    talk.bot("user-stopped-speaking")
    talk.bot("bot-llm-text", {"text": "Here you are."})
    talk.bot("bot-llm-stopped")
    talk.say("Here you are.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text) == ("I would like a coffee.", "Here you are.")
    assert (turn.status, turn.assumed) == ("complete", None)
    assert turn.timings.llm_started == pytest.approx(started - 0.1)


def test_a_mark_for_a_user_found_not_finished() -> None:
    """A mark that older bots send as text of the model is no answer, and not its first word either."""
    talk = Conversation((1, 2))
    talk.bot("user-started-speaking")
    hear(talk, "I would like")
    talk.run("○")
    hear(talk, "a coffee.")
    talk.bot("bot-llm-started")
    talk.bot("user-stopped-speaking")
    first = talk.now
    talk.bot("bot-llm-text", {"text": "Here you are."})
    talk.bot("bot-llm-stopped")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Here you are."})
    talk.bot("bot-stopped-speaking")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text) == ("I would like a coffee.", "Here you are.")
    assert turn.timings.first_token == pytest.approx(first)


@pytest.mark.parametrize("version", [(1, 0), (2, 2)])
def test_a_model_that_hears_the_end_of_speech_before_the_bot_reports_it(version: Version) -> None:
    """A run without text of a model from speech to speech is no verdict: the bot tells its words when it speaks."""
    talk = Conversation(version)
    talk.bot("user-started-speaking")
    talk.run()
    talk.bot("user-stopped-speaking")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Hi."})
    talk.bot("bot-stopped-speaking")
    (turn,) = talk.tracker.turns
    assert (turn.modality, turn.bot_text) == ("audio", "Hi.")


@pytest.mark.parametrize("has_stopped", [False, True], ids=["speaking", "silent"])
def test_a_model_that_asks_the_user_to_go_on(has_stopped: bool) -> None:
    """A model that asks the user to go on has answered, whether or not the user had stopped speaking."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "I would like")
    talk.run()
    if has_stopped:
        talk.bot("user-stopped-speaking")
    talk.run("Go ahead.")
    talk.say("Go ahead.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text) == ("I would like", "Go ahead.")
    assert (turn.status, turn.assumed) == ("complete", None)


def test_a_user_found_not_finished_who_speaks_again() -> None:
    """Speech that is reported again belongs to the same turn."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "I would like")
    talk.run()
    talk.bot("user-stopped-speaking")
    talk.bot("user-started-speaking")
    talk.bot("bot-interrupted")
    hear(talk, "a coffee.")
    talk.bot("bot-llm-started")
    talk.bot("user-stopped-speaking")
    talk.bot("bot-llm-text", {"text": "Here you are."})
    talk.bot("bot-llm-stopped")
    talk.say("Here you are.")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text) == ("I would like a coffee.", "Here you are.")


def test_a_text_that_is_typed_by_a_user_found_not_finished() -> None:
    """The text is answered first, and the speech when the model takes it for finished."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "I would like")
    talk.run()
    talk.ask("Hi?")
    talk.bot("bot-interrupted")
    talk.acknowledge("Hi?")
    talk.run("Hello.")
    talk.say("Hello.")
    hear(talk, "a coffee.")
    talk.run("Here you are.")
    talk.bot("user-stopped-speaking")
    talk.say("Here you are.", 2)
    assert [(turn.user_text, turn.bot_text) for turn in talk.over] == [
        ("Hi?", "Hello."),
        ("I would like a coffee.", "Here you are."),
    ]


@pytest.mark.parametrize("is_late", [False, True], ids=["during the run", "after the run"])
def test_an_error_of_a_model_that_was_to_decide_whether_the_user_has_finished(is_late: bool) -> None:
    """An error of a model that was to decide whether the user has finished ends the turn as failed."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    hear(talk, "What is it?")
    talk.bot("bot-llm-started")
    kinds = ["error", "bot-llm-stopped"]
    for kind in reversed(kinds) if is_late else kinds:
        talk.bot(kind, {"error": "no credits", "fatal": False} if kind == "error" else None)
    if is_late:
        assert talk.wait() < 5
    (turn,) = talk.over
    assert (turn.user_text, turn.status, len(turn.errors)) == ("What is it?", "failed", 1)


def test_the_end_of_the_session_in_mid_answer() -> None:
    """The end of the session ends a turn in mid-answer as failed, with the text so far."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-text", {"text": "I"})
    talk._took(talk.tracker.end_session(talk.now))
    assert [(turn.status, turn.bot_text) for turn in talk.over] == [("failed", "I")]


@pytest.mark.parametrize(("lost", "status"), [(False, "complete"), (True, "failed")])
def test_the_end_of_the_session_in_the_last_word(lost: bool, status: str) -> None:
    """A bot reports a word as it starts to say it: if the connection is lost then, the rest was not heard."""
    talk = Conversation()
    talk.ask("When?")
    talk.acknowledge("When?")
    talk.run("Noon.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Noon."})
    talk._took(talk.tracker.end_session(talk.now, lost=lost))
    assert [(turn.status, turn.bot_text) for turn in talk.over] == [(status, "Noon.")]


@pytest.mark.parametrize(("lost", "status"), [(False, "complete"), (True, "failed")])
def test_the_end_of_the_session_before_the_first_speech(lost: bool, status: str) -> None:
    """If the connection is lost, the client does not assume that the written text was the whole answer."""
    talk = Conversation()
    talk.ask("When?")
    talk.acknowledge("When?")
    talk.run("Noon.")
    talk._took(talk.tracker.end_session(talk.now, lost=lost))
    assert [(turn.status, turn.assumed is None) for turn in talk.over] == [(status, lost)]


def test_the_end_of_the_session_behind_a_function() -> None:
    """An answer whose function has returned is not whole, though all that was written was spoken."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-text", {"text": "One moment."})
    talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("bot-llm-stopped")
    talk.say("One moment.")
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "function_name": "get", "result": 12})
    talk._took(talk.tracker.end_session(talk.now))
    assert [(turn.status, turn.spoken_text) for turn in talk.over] == [("failed", "One moment.")]


def test_a_question_that_nobody_answers_ends_with_the_session() -> None:
    """The end of the session ends the turn of an unanswered question as failed."""
    talk = Conversation()
    talk.ask("Hi?")
    talk._took(talk.tracker.end_session(talk.now))
    assert [turn.status for turn in talk.over] == ["failed"]


def test_speech_before_the_model_is_no_answer() -> None:
    """Speech before the first known run of a bot's model is a turn of the bot, not the answer."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.progress("Welcome.", "Welcome.", 1)
    talk.bot("bot-started-speaking")
    talk.bot("bot-llm-started")
    talk.bot("bot-stopped-speaking")
    talk.bot("bot-llm-text", {"text": "Yes."})
    talk.bot("bot-llm-stopped")
    talk.say("Yes.", 2)
    assert [(turn.initiator, turn.bot_text) for turn in talk.over] == [("bot", "Welcome."), ("user", "Yes.")]


def test_a_bot_without_a_model() -> None:
    """A bot without a model answers with its speech, whose text is exact to the sentence."""
    talk = Conversation((1, 2))
    talk.bot("user-started-speaking")
    talk.bot("user-transcription", {"text": "Hi?", "final": True})
    talk.bot("user-stopped-speaking")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Hello there."})
    talk.bot("bot-stopped-speaking")
    (turn,) = talk.over
    assert (turn.user_text, turn.bot_text, turn.spoken_exact) == ("Hi?", "Hello there.", "sentence")


@pytest.mark.parametrize("field", ["message", "other"])
def test_errors_and_metrics_are_bounded(field: str) -> None:
    """Errors over the limit have their text only, as one line; metrics over it are left out."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.bot("bot-llm-started")
    for _ in range(3):
        talk.bot("error", {"message": "no\n", field: "\n" + "a" * 600_000, "fatal": False})
        talk.bot("metrics", {"ttfb": [{"processor": "a", "value": 1.0}], field: "a" * 300_000})
    (turn,) = talk.tracker.turns
    assert 0 < sum(map(len, (str(attrs.asdict(each)) for each in (*turn.errors, *turn.metrics)))) < 1_003_000
    assert len(turn.errors) == 3
    assert "\n" not in turn.errors[-1].message
    assert len(turn.metrics) == 1


def test_as_many_errors_and_metrics_as_are_promised() -> None:
    """A turn has 20 errors and 50 measurements at most, the first ones."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.bot("bot-llm-started")
    for count in range(52):
        talk.bot("metrics", {"ttfb": [{"processor": "a", "value": float(count)}]})
        if count < 22:
            talk.bot("error", {"error": str(count), "fatal": False})
    (turn,) = talk.tracker.turns
    assert [error.message for error in turn.errors] == [str(count) for count in range(20)]
    assert [metrics.ttfb[0].value for metrics in turn.metrics] == [float(count) for count in range(50)]


def test_an_error_is_a_sign_of_the_bot() -> None:
    """Each error that the bot reports restarts its time limit."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.bot("bot-llm-started")
    talk.now += 100.0
    reported = talk.now
    talk.bot("error", {"error": "slow", "fatal": False})
    assert talk.tracker.due == reported + Waits().lost


def test_the_first_token_is_no_blank() -> None:
    """The first token is the first part of the text that has more than blanks."""
    talk = Conversation()
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-text", {"text": " \n"})
    began = talk.now
    talk.bot("bot-llm-text", {"text": "Yes."})
    assert talk.tracker.turns[0].timings.first_token == began


def test_a_call_that_is_told_twice_is_one() -> None:
    """A call is once in the timeline, and so is its end, even if it arrives after the answer."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    for _ in range(2):
        talk.bot("llm-function-call-in-progress", {"tool_call_id": "1", "function_name": "get"})
    talk.bot("bot-interrupted")
    talk.ask("Stop.", "b")
    talk.acknowledge("Stop.", "b")
    talk.bot("bot-llm-started")
    talk.bot("llm-function-call-stopped", {"tool_call_id": "1", "cancelled": True})
    cut, answer = talk.tracker.turns
    assert [entry.kind for entry in cut.timeline].count("calls") == 1
    assert (cut.status, cut.function_calls[0].cancelled) == ("interrupted", True)
    assert not answer.function_calls
    assert not {"cancelled", "returned"} & {entry.kind for entry in answer.timeline}


def test_a_user_who_goes_on_asks_once_more() -> None:
    """Speech that resumes before the answer is one question, whose earlier words the bot reports again."""
    talk = Conversation()
    for text in ("What time", "What time is it?"):
        talk.bot("user-started-speaking")
        talk.bot("user-stopped-speaking")
        talk.bot("user-llm-text", {"text": text})
    talk.run("Twelve.")
    talk.say("Twelve.")
    assert [(turn.user_text, turn.bot_text) for turn in talk.over] == [("What time is it?", "Twelve.")]


def test_a_late_transcript_that_is_not_final_is_no_question() -> None:
    """A late interim transcript after the answer starts no turn; final words do."""
    talk = Conversation((1, 2))
    talk.bot("user-started-speaking")
    talk.bot("user-transcription", {"text": "Time?", "final": True})
    talk.bot("user-stopped-speaking")
    talk.run("Twelve.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-stopped-speaking")
    assert len(talk.over) == 1
    talk.bot("user-transcription", {"text": "Tim", "final": False})
    assert len(talk.tracker.turns) == 1
    talk.bot("user-transcription", {"text": "And now?", "final": True})
    assert [turn.user_text for turn in talk.tracker.turns] == ["Time?", "And now?"]


def test_words_that_are_told_by_two_messages() -> None:
    """Words of the user, and of the bot, that a bot tells in its new way and in the old one, count once."""
    talk = Conversation()
    talk.bot("user-started-speaking")
    talk.bot("user-input", {"text": "Time?", "input_type": "transcription", "final": True})
    talk.bot("user-transcription", {"text": "Time?", "final": True})
    talk.bot("user-stopped-speaking")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-stopped")
    talk.progress("One moment.", "One moment.")
    talk.bot("bot-tts-text", {"text": "One moment."})
    (turn,) = talk.tracker.turns
    assert (turn.user_text, turn.bot_text) == ("Time?", "One moment.")


def test_speech_that_is_announced_after_an_interruption_that_cut_nothing() -> None:
    """An answer that an interruption found empty goes on by another run, and the speech of that run is its own."""
    talk = Conversation()
    talk.ask("Weather?")
    talk.acknowledge("Weather?")
    talk.bot("bot-llm-started")
    talk.bot("bot-interrupted")
    talk.bot("bot-llm-started")
    talk.progress("One moment.", "One", 7)
    (turn,) = talk.tracker.turns
    assert (turn.bot_text, turn.spoken_text, turn.status) == ("One moment.", "One", "in_progress")


def early_speech(talk: Conversation) -> None:
    """Let the bot report speech after an interruption, without its words."""
    talk.ask("Hi?", "early")
    talk.bot("bot-interrupted")
    talk.bot("bot-started-speaking")


@pytest.mark.parametrize("end", ["interruption", "silence", "session"])
def test_speech_that_has_told_nothing(end: str) -> None:
    """Speech without any words, and that was cut or has stopped, is not the speech of the next answer."""
    talk = Conversation()
    early_speech(talk)
    if end == "interruption":
        talk.bot("bot-interrupted")
    elif end == "silence":
        talk.bot("bot-stopped-speaking")
    else:
        talk._took(talk.tracker.end_session(talk.now, lost=True))
        talk.tracker.start_session(audio_out=True, version=(2, 2))
        talk.ask("Hi?", "early")
    talk.acknowledge("Hi?", "early")
    talk.bot("bot-llm-started")
    talk.bot("bot-llm-text", {"text": "Hello you."})
    talk.progress("Hello you.", "Hello")
    turn = talk.tracker.turns[-1]
    assert (turn.spoken_text, turn.timings.bot_started_speaking) == ("Hello", None)
    began = talk.now
    talk.bot("bot-started-speaking")
    assert talk.tracker.turns[-1].timings.bot_started_speaking == began


def test_words_of_a_new_session_are_its_own() -> None:
    """Words of the lost session's bot that were not spoken do not belong to the next session's bot."""
    talk = Conversation((1, 2))
    talk.run("Hello you.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Hello"})
    talk._took(talk.tracker.end_session(talk.now, lost=True))
    talk.tracker.start_session(audio_out=True, version=(1, 2))
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "you."})
    assert [(turn.session, turn.bot_text, turn.spoken_text) for turn in talk.tracker.turns] == [
        (1, "Hello you.", "Hello"),
        (2, "you.", "you."),
    ]


def test_a_session_that_was_lost_after_an_interruption() -> None:
    """The bot of the next session was not interrupted, and its first speech is a turn."""
    talk = Conversation((2, 0))
    talk.run("Hello you.")
    talk.bot("bot-started-speaking")
    talk.bot("bot-interrupted")
    talk._took(talk.tracker.end_session(talk.now, lost=True))
    talk.tracker.start_session(audio_out=True, version=(2, 0))
    talk.progress("Welcome back.", "Welcome")
    assert [(turn.session, turn.bot_text) for turn in talk.tracker.turns] == [(1, "Hello you."), (2, "Welcome back.")]


def test_a_message_that_could_not_be_sent() -> None:
    """The turn of a message that could not be sent has failed, once."""
    talk = Conversation()
    talk.ask("Hi?")
    for _ in range(2):
        talk._took(talk.tracker.unsent(talk.now, "q1"))
    assert [(turn.user_text, turn.status) for turn in talk.over] == [("Hi?", "failed")]


def test_patience_ends_at_its_moment() -> None:
    """An answer that owes nothing is over when the bot has been quiet for the patience, and not earlier."""
    talk = Conversation(audio_out=False)
    talk.tracker.patience = 3.0
    talk.ask("Hi?")
    talk.acknowledge("Hi?")
    talk.run("Hello.")
    due = talk.tracker.due
    assert due is not None
    talk._took(talk.tracker.pass_time(due - 0.001))
    talk._took(talk.tracker.settle(due - 0.001))
    assert not talk.over
    talk._took(talk.tracker.settle(due))
    assert [(turn.status, turn.assumed) for turn in talk.over] == [("complete", None)]


def test_a_turn_that_begins_and_ends_by_one_message_is_reported_once() -> None:
    """The bot's own speech before it had the question ends when that is known, and the question stays open."""
    talk = Conversation((2, 0))
    talk.ask("Hi?")
    for type_, data in (("bot-started-speaking", None), ("bot-tts-text", {"text": "Welcome."})):
        talk.bot(type_, data)
    talk.bot("bot-stopped-speaking")
    assert not talk.over
    talk.bot("user-llm-text", {"text": "Hi?"})
    assert [(turn.initiator, turn.bot_text, turn.status) for turn in talk.over] == [("bot", "Welcome.", "complete")]
    talk.run("Yes.")
    talk.say("Yes.")
    assert [(turn.number, turn.bot_text) for turn in talk.over] == [(2, "Welcome."), (1, "Yes.")]


def test_speech_that_goes_on_from_one_answer_to_the_next() -> None:
    """A bot that speaks two answers without a pause has spoken the second one when it is silent."""
    talk = Conversation()
    talk.ask("One?", "a")
    talk.acknowledge("One?", "a")
    talk.run("First.")
    talk.bot("bot-started-speaking")
    talk.progress("First.", "First.", 1)
    talk.ask("Two?", "b")
    talk.acknowledge("Two?", "b")
    talk.run("Second.")
    talk.progress("Second.", "Second.", 2)
    assert [(turn.user_text, turn.status) for turn in talk.over] == [("One?", "complete")]
    talk.bot("bot-stopped-speaking")
    assert [(turn.user_text, turn.status, turn.assumed) for turn in talk.over] == [
        ("One?", "complete", None),
        ("Two?", "complete", None),
    ]


def test_late_words_of_a_greeting_that_was_cut() -> None:
    """Words that no model wrote, and that arrive after the interruption, start no turn."""
    talk = Conversation((2, 0))
    talk.bot("bot-started-speaking")
    talk.bot("bot-tts-text", {"text": "Welcome,"})
    talk.bot("bot-interrupted")
    talk.bot("bot-tts-text", {"text": "friend."})
    assert [(turn.bot_text, turn.status) for turn in talk.tracker.turns] == [("Welcome,", "interrupted")]


def test_speech_is_acknowledged_by_its_words_if_the_bot_tells_them() -> None:
    """The end of speech acknowledges it only until the bot has once reported the input of its model."""
    talk = Conversation()
    acknowledged = []
    for _ in range(2):
        talk.bot("user-started-speaking")
        stopped = talk.now
        talk.bot("user-stopped-speaking")
        told = talk.now
        talk.bot("user-llm-text", {"text": "Time?"})
        talk.run("Twelve.")
        talk.say("Twelve.")
        acknowledged.append(talk.over[-1].timings.acknowledged == stopped)
    assert (acknowledged, talk.over[-1].timings.acknowledged) == ([True, False], told)


def test_three_answers_without_a_pause() -> None:
    """One answer at a time is still spoken while the next one starts; the one before that has ended."""
    talk = Conversation()
    for question in ("One?", "Two?", "Three?"):
        talk.ask(question, question)
        talk.acknowledge(question, question)
        talk.run(f"To {question}")
        talk.bot("bot-started-speaking")
    assert [(turn.user_text, turn.status) for turn in talk.tracker.turns] == [
        ("One?", "complete"),
        ("Two?", "in_progress"),
        ("Three?", "in_progress"),
    ]


def test_a_question_whose_answer_was_no_answer_is_still_the_first() -> None:
    """A later question is not answered first and not skipped if the first one's supposed answer was a greeting."""
    talk = Conversation((2, 0))
    talk.ask("One?", "a")
    talk.progress("Welcome to the shop.", "Welcome", 7)
    talk.bot("bot-started-speaking")
    talk.ask("Two?", "b")
    for number, (question, answer) in enumerate((("One?", "First."), ("Two?", "Second.")), 8):
        talk.bot("user-llm-text", {"text": question})
        talk.run(answer)
        talk.say(answer, number)
    assert [(turn.user_text, turn.bot_text, turn.status) for turn in talk.over] == [
        ("", "Welcome to the shop.", "complete"),
        ("One?", "First.", "complete"),
        ("Two?", "Second.", "complete"),
    ]


def test_the_turn_that_ends_first_is_waited_for() -> None:
    """While one answer is still spoken, the next one, whose speech is missing, has its own shorter wait."""
    talk = Conversation()
    for question in ("One?", "Two?"):
        talk.ask(question, question)
        talk.acknowledge(question, question)
        talk.bot("bot-llm-started")
        talk.bot("bot-llm-text", {"text": f"To {question}"})
        last = talk.now
        talk.bot("bot-llm-stopped")
        if question == "One?":
            talk.bot("bot-started-speaking")
    assert talk.tracker.due == last + Waits().speech
