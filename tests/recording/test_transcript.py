"""One transcript out of what each generation of bots sends."""

from __future__ import annotations

import itertools
from typing import Any

from rtvi_sync import BotLLMTextData, BotOutputData, Event, RTVIEvent, UserInputData, UserTranscriptionData
from rtvi_sync.recording.transcript import Line, Transcript

_clock = itertools.count(1)


def event(type_: RTVIEvent, data: Any) -> Event:
    """An event a second after the one before."""
    return Event(type=type_, data=data, received_at=float(next(_clock)))


def heard(text: str, final: bool = True) -> list[Event]:
    """How a 2.x bot tells what it heard."""
    return [
        event(RTVIEvent.USER_INPUT, UserInputData(text=text, input_type="transcription", final=final)),
        event(RTVIEvent.USER_TRANSCRIPT, UserTranscriptionData(text=text, final=final)),
    ]


def tokens(type_: RTVIEvent, *texts: str) -> list[Event]:
    """Text in pieces."""
    return [event(type_, BotLLMTextData(text=text)) for text in texts]


def output(text: str, segment: int | None, kind: str = "sentence") -> Event:
    """A report of `bot-output`."""
    return event(RTVIEvent.BOT_OUTPUT, BotOutputData(text=text, output_type=kind, segment_id=segment))


def lines(transcript: Transcript, *events: Event) -> list[Line]:
    """What events add."""
    return [line for item in events if (line := transcript.take(item)) is not None]


def test_a_turn_of_a_current_bot_is_told_once() -> None:
    """Words, sentences and progress reports make one line for each sentence, interim transcripts are not final."""
    transcript = Transcript()
    shown = lines(
        transcript,
        *heard("Hel", final=False),
        *heard("Hello."),
        *tokens(RTVIEvent.BOT_LLM_TEXT, "Good", " day."),
        *tokens(RTVIEvent.BOT_TRANSCRIPT, " Good day."),
        output("Good day.", 7),
        *tokens(RTVIEvent.BOT_TTS_TEXT, "Good"),
        output("Good day.", 7),
    )
    assert shown == [
        Line(who="you", text="Hel", final=False),
        Line(who="you", text="Hello."),
        Line(who="bot", text="Good day."),
    ]
    assert transcript.end_of_turn() is None


def test_a_bot_with_output_only_has_a_line_for_each_segment() -> None:
    """Reports of one segment are one line, words of the older dialect none, segments without an id one each."""
    shown = lines(Transcript(), output("One.", 1), output("One.", 1), output("One.", 1, kind="word"), output("Two.", 2))
    assert [line.text for line in shown] == ["One.", "Two."]
    assert [line.text for line in lines(Transcript(), output("A.", None), output("A.", None))] == ["A.", "A."]


def test_a_bot_with_words_only_is_quoted_at_the_end_of_its_turn() -> None:
    """Words of the model bring their spaces, spoken words do not; the model's are preferred; nothing is told twice."""
    transcript = Transcript()
    assert lines(transcript, *tokens(RTVIEvent.BOT_TTS_TEXT, "Just", "spoken.")) == []
    assert transcript.end_of_turn() == Line(who="bot", text="Just spoken.")
    assert transcript.end_of_turn() is None
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, "By", " the", " model"), *tokens(RTVIEvent.BOT_TTS_TEXT, "By"))
    assert transcript.unfinished == Line(who="bot", text="By the model", final=False)
    assert transcript.end_of_turn() == Line(who="bot", text="By the model")
    assert transcript.unfinished is None


def test_a_turn_without_end_is_not_kept_without_end() -> None:
    """Words are kept up to a limit, so that a bot that never stops costs bounded memory."""
    transcript = Transcript()
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, *["x" * 10_000] * 30))
    said = transcript.end_of_turn()
    assert said is not None
    assert len(said.text) == 100_000


def test_a_turn_in_words_after_one_in_sentences_is_quoted() -> None:
    """A bot may finish lines in one turn and not in the next."""
    transcript = Transcript()
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, "A."), *tokens(RTVIEvent.BOT_TRANSCRIPT, "A."))
    assert transcript.end_of_turn() is None
    lines(transcript, *tokens(RTVIEvent.BOT_TTS_TEXT, "Goodbye."))
    assert transcript.end_of_turn() == Line(who="bot", text="Goodbye.")


def test_an_older_bot_without_user_input() -> None:
    """A bot that sends user-transcription only is understood too."""
    transcript = Transcript()
    assert lines(transcript, heard("Hello.")[1]) == [Line(who="you", text="Hello.")]


def test_what_was_typed_is_not_said() -> None:
    """Chat and backchannels are no transcripts."""
    transcript = Transcript()
    typed = [
        event(RTVIEvent.USER_INPUT, UserInputData(text="x", input_type=kind, final=True))
        for kind in ("chat", "backchannel")
    ]
    assert lines(transcript, *typed) == []
