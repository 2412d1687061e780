"""Transcripts from the messages of each generation of bots."""

from __future__ import annotations

import itertools
from typing import Any

from rtvi_sync import BotLLMTextData, BotOutputData, Event, RTVIEvent, UserInputData, UserTranscriptionData
from rtvi_sync.recording.transcript import Line, Transcript

_clock = itertools.count(1)


def event(type_: RTVIEvent, data: Any) -> Event:
    """Return an event 1 s after the one before."""
    return Event(type=type_, data=data, received_at=float(next(_clock)))


def heard(text: str, final: bool = True) -> list[Event]:
    """Return the events by which a 2.x bot reports what it heard."""
    return [
        event(RTVIEvent.USER_INPUT, UserInputData(text=text, input_type="transcription", final=final)),
        event(RTVIEvent.USER_TRANSCRIPT, UserTranscriptionData(text=text, final=final)),
    ]


def tokens(type_: RTVIEvent, *texts: str) -> list[Event]:
    """Return an event for each of these texts."""
    return [event(type_, BotLLMTextData(text=text)) for text in texts]


def output(text: str, segment: int | None, kind: str = "sentence") -> Event:
    """Return an event of a `bot-output` message."""
    return event(RTVIEvent.BOT_OUTPUT, BotOutputData(text=text, output_type=kind, segment_id=segment))


def lines(transcript: Transcript, *events: Event) -> list[Line]:
    """Return the lines that these events add."""
    return [line for item in events if (line := transcript.add(item)) is not None]


def test_a_turn_of_a_current_bot_appears_once() -> None:
    """Words, sentences and progress reports make one line per sentence; interim transcripts are not final."""
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
    assert transcript.end_turn() is None


def test_a_bot_with_output_only_has_a_line_for_each_segment() -> None:
    """Messages of one segment make one line, words of the older dialect none, each segment without an id one."""
    shown = lines(Transcript(), output("One.", 1), output("One.", 1), output("One.", 1, kind="word"), output("Two.", 2))
    assert [line.text for line in shown] == ["One.", "Two."]
    assert [line.text for line in lines(Transcript(), output("A.", None), output("A.", None))] == ["A.", "A."]


def test_single_words_become_a_line_at_the_end_of_the_turn() -> None:
    """LLM words include their spaces, TTS words do not; LLM words are preferred; no line appears twice."""
    transcript = Transcript()
    assert lines(transcript, *tokens(RTVIEvent.BOT_TTS_TEXT, "Just", "spoken.")) == []
    assert transcript.end_turn() == Line(who="bot", text="Just spoken.")
    assert transcript.end_turn() is None
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, "By", " the", " model"), *tokens(RTVIEvent.BOT_TTS_TEXT, "By"))
    assert transcript.unfinished == Line(who="bot", text="By the model", final=False)
    assert transcript.end_turn() == Line(who="bot", text="By the model")
    assert transcript.unfinished is None


def test_a_turn_is_kept_up_to_a_limit() -> None:
    """A bot that never ends its turn costs bounded memory."""
    transcript = Transcript()
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, *["x" * 10_000] * 30))
    said = transcript.end_turn()
    assert said is not None
    assert len(said.text) == 100_000


def test_a_turn_in_words_follows_one_in_sentences() -> None:
    """A bot may send complete lines in one turn and single words in the next."""
    transcript = Transcript()
    lines(transcript, *tokens(RTVIEvent.BOT_LLM_TEXT, "A."), *tokens(RTVIEvent.BOT_TRANSCRIPT, "A."))
    assert transcript.end_turn() is None
    lines(transcript, *tokens(RTVIEvent.BOT_TTS_TEXT, "Goodbye."))
    assert transcript.end_turn() == Line(who="bot", text="Goodbye.")


def test_an_older_bot_without_user_input() -> None:
    """The user's line is made from user-transcription if that is all the bot sends."""
    transcript = Transcript()
    assert lines(transcript, heard("Hello.")[1]) == [Line(who="you", text="Hello.")]


def test_typed_text_is_no_line() -> None:
    """Chat and backchannel input adds no line."""
    transcript = Transcript()
    typed = [
        event(RTVIEvent.USER_INPUT, UserInputData(text="x", input_type=kind, final=True))
        for kind in ("chat", "backchannel")
    ]
    assert lines(transcript, *typed) == []
