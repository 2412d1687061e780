"""The lines of a conversation, from its turns."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rtvi_sync.conversation.record import TurnRecord, TurnTimings
from rtvi_sync.protocol.text import clean
from rtvi_sync.recording.transcript import Line, Transcript, has_begun

pytestmark = pytest.mark.inside


def spoken(
    number: int = 1, *, user: str = "", bot: str = "", over: bool = False, heard: bool = False, begun: bool = False
) -> TurnRecord:
    """Return a turn in which the user speaks."""
    timings = TurnTimings(transcribed=1.0 if heard else None, llm_started=2.0 if begun else None)
    status: Any = "complete" if over else "in_progress"
    return TurnRecord(
        number=number,
        session=1,
        initiator="user",
        modality="audio",
        status=status,
        user_text=user,
        bot_text=bot,
        timings=timings,
    )


def unasked(number: int, text: str, *, over: bool = True) -> TurnRecord:
    """Return a turn that the bot started."""
    status: Any = "complete" if over else "in_progress"
    return TurnRecord(number=number, session=1, initiator="bot", status=status, bot_text=text)


def test_each_side_has_a_line_when_its_words_are_complete() -> None:
    """Words become a line when they are complete, and are the unfinished line until then."""
    transcript = Transcript()
    steps = [
        (spoken(user="Hel"), [], Line("you", "Hel")),
        (spoken(user="Hello.", heard=True), [], Line("you", "Hello.")),
        (spoken(user="Hello.", heard=True, begun=True), [Line("you", "Hello.")], None),
        (spoken(user="Hello.", bot=" Good", heard=True, begun=True), [], Line("bot", "Good")),
        (spoken(user="Hello.", bot=" Good day.", over=True), [Line("bot", "Good day.")], None),
        (spoken(user="Hello.", bot=" Good day.", over=True), [], None),
    ]
    for turn, lines, unfinished in steps:
        assert (transcript.update([turn]), transcript.unfinished) == (lines, unfinished)


def test_what_is_flushed_is_not_repeated() -> None:
    """A filler is a line, and the bot's words after its function are another."""
    transcript = Transcript()
    assert transcript.update([unasked(1, "One moment.", over=False)], flush=True) == [Line("bot", "One moment.")]
    assert transcript.unfinished is None
    assert transcript.update([unasked(1, "One moment. It rains.")]) == [Line("bot", "It rains.")]


def test_a_transcript_that_comes_late_is_a_line() -> None:
    """Speech-to-speech models answer first."""
    transcript = Transcript()
    assert transcript.update([spoken(bot="Good day.", begun=True)], flush=True) == [Line("bot", "Good day.")]
    late = spoken(user="Hello.", bot="Good day.", heard=True, begun=True)
    assert transcript.update([late]) == [Line("you", "Hello.")]


def test_turns_are_told_apart() -> None:
    """The lines have the order of the turns, and those that are no longer given are forgotten."""
    transcript = Transcript()
    greeting, question = unasked(1, "Hi."), spoken(2, user="Bye.", bot="Bye!", over=True)
    assert transcript.update([greeting, question]) == [Line("bot", "Hi."), Line("you", "Bye."), Line("bot", "Bye!")]
    assert transcript.update([question]) == []
    assert transcript.update([greeting]) == [Line("bot", "Hi.")]


def test_a_long_text_is_divided() -> None:
    """A long text is divided into lines without the loss of a word."""
    words = " ".join(["word"] * 1000)
    lines = Transcript().update([unasked(1, words)])
    assert " ".join(line.text for line in lines) == words
    assert all(clean(line.text) == line.text for line in lines)


def test_who_speaks_without_words() -> None:
    """Without known words there is one line for each side that speaks; words found later follow it."""
    turn = TurnRecord(number=1, session=1, initiator="user", modality="audio", user_text=None, bot_text=None)
    asked = attrs.evolve(turn, timings=TurnTimings(user_started=1.0))
    answered = attrs.evolve(turn, timings=TurnTimings(user_started=1.0, bot_started_speaking=2.0))
    over = attrs.evolve(answered, status="complete")
    transcript = Transcript()
    steps = [(turn, []), (asked, [Line("you", "(speaks)")]), (asked, []), (answered, [Line("bot", "(speaks)")])]
    steps += [(over, []), (attrs.evolve(over, bot_text="Hi."), [Line("bot", "Hi.")])]
    for known, lines in steps:
        assert transcript.update([known]) == lines
        assert transcript.unfinished is None


def test_typed_text_is_no_line() -> None:
    """Typed text is no line of the transcript, because it is shown where it is typed."""
    typed = TurnRecord(number=1, session=1, initiator="user", modality="text", user_text="Hello.")
    transcript = Transcript()
    assert transcript.update([typed]) == []
    assert transcript.unfinished is None


def test_when_an_answer_has_begun() -> None:
    """A run of the model, speech, text or a call."""
    assert not has_begun(spoken(user="Hello."))
    assert has_begun(spoken(begun=True))
    assert has_begun(spoken(bot="Hi"))
