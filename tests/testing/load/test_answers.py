"""The parts of an answer and their durations, from events alone."""

from __future__ import annotations

from array import array

import pytest

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.media import AudioFrame
from rtvi_sync.testing.load.answers import Answer, AnswerTimer, end_of_voice

E = RTVIEvent
SPOKEN = [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_STARTED_SPEAKING, E.BOT_LLM_STOPPED, E.BOT_STOPPED_SPEAKING]


def feed(timer: AnswerTimer, *events: RTVIEvent, at: float = 11.0) -> list[tuple[str, float]]:
    """Process one event each second; return the parts that they complete, with their seconds."""
    completed = []
    for second, type_ in enumerate(events):
        completed += timer.handle_event(Event(type=type_, data=None, received_at=at + second))
    return [(name, seconds) for name, _, seconds in completed]


@pytest.mark.parametrize(
    ("spoken", "events", "told"),
    [
        (True, SPOKEN, [("first text", 2), ("first audio", 3), ("complete", 5)]),
        # It writes longer than it speaks.
        (
            True,
            [E.BOT_LLM_STARTED, E.BOT_STARTED_SPEAKING, E.BOT_STOPPED_SPEAKING, E.BOT_TTS_TEXT, E.BOT_LLM_STOPPED],
            [("first audio", 2), ("first text", 4), ("complete", 5)],
        ),
        # It sends no events of a language model.
        (
            True,
            [E.BOT_STARTED_SPEAKING, E.BOT_OUTPUT, E.BOT_STOPPED_SPEAKING],
            [("first audio", 1), ("first text", 2), ("complete", 3)],
        ),
        # It sends no text.
        (True, [E.BOT_STARTED_SPEAKING, E.BOT_STOPPED_SPEAKING], [("first audio", 1), ("complete", 2)]),
        # A written answer needs no speech; a run that only calls a function has no text.
        (
            False,
            [E.BOT_LLM_STARTED, E.BOT_LLM_STOPPED, E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_LLM_STOPPED],
            [("first text", 4), ("complete", 5)],
        ),
    ],
)
def test_an_answer(spoken: bool, events: list[RTVIEvent], told: list[tuple[str, float]]) -> None:
    """Each part is reported once, from the end of the user's turn; later events belong to no question."""
    timer = AnswerTimer()
    timer.start(10.0, spoken=spoken)
    assert feed(timer, *events) == told
    seconds = dict(told)
    assert list(timer.completed) == [
        Answer(text=seconds.get("first text"), audio=seconds.get("first audio"), complete=seconds["complete"])
    ]
    assert feed(timer, *SPOKEN) == []
    assert timer.cancel() is None


def test_handlers_lag() -> None:
    """An event that arrived before the question does not answer it though it is handled later, nor does its rest."""
    timer = AnswerTimer()
    timer.start(10.0, spoken=True)
    assert feed(timer, *SPOKEN, at=1.0) == []  # a greeting that was over
    assert feed(timer, *SPOKEN) == [("first text", 2), ("first audio", 3), ("complete", 5)]
    timer.start(20.0, spoken=True)
    assert feed(timer, *SPOKEN[:3], E.BOT_LLM_TEXT, at=17.5) == []  # one that was not
    assert feed(timer, *SPOKEN[3:], at=21.0) == []
    assert feed(timer, *SPOKEN, at=23.0) == [("first text", 4), ("first audio", 5), ("complete", 7)]


def test_without_a_question() -> None:
    """A greeting is no answer."""
    assert feed(AnswerTimer(), *SPOKEN) == []


@pytest.mark.parametrize("sign", [E.BOT_INTERRUPTED, E.BOT_STOPPED_SPEAKING, E.BOT_LLM_STARTED])
def test_a_question_during_an_answer(sign: RTVIEvent) -> None:
    """What the bot was saying before is no answer; after the sign that it has stopped, its events may be one."""
    timer = AnswerTimer()
    feed(timer, E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_STARTED_SPEAKING, at=1.0)
    timer.start(10.0, spoken=True)
    assert feed(timer, E.BOT_LLM_TEXT, E.BOT_TTS_TEXT, sign, E.BOT_LLM_TEXT) == [("first text", 4)]


@pytest.mark.parametrize(
    ("spoken", "events", "missing"),
    [
        (True, [], "first audio"),
        (True, [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT], "first audio"),
        (True, [E.BOT_STARTED_SPEAKING], "complete"),
        (False, [], "first text"),
        (False, [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT], "complete"),
    ],
)
def test_an_answer_that_does_not_come(spoken: bool, events: list[RTVIEvent], missing: str) -> None:
    """cancel() returns the part that would have come next, once; later events are not reported."""
    timer = AnswerTimer()
    timer.start(10.0, spoken=spoken)
    feed(timer, *events)
    assert timer.cancel() == (missing, 10.0)
    assert timer.cancel() is None
    assert feed(timer, *SPOKEN) == []


def test_the_end_of_a_session() -> None:
    """It ends an earlier question, and not one that was asked in the next session by then."""
    timer = AnswerTimer()
    timer.start(10.0, spoken=False)
    assert timer.end_session(9.0) is None
    assert timer.end_session(11.0) == ("first text", 10.0)
    feed(timer, E.BOT_STARTED_SPEAKING)
    timer.end_session(20.0)
    timer.start(21.0, spoken=True)
    assert feed(timer, E.BOT_LLM_TEXT, at=22.0) == [("first text", 1)]


def frame(level: int, at: float) -> AudioFrame:
    """Return 20 ms of noise."""
    return AudioFrame(pcm=array("h", [level, -level] * 160).tobytes(), sample_rate_hz=16_000, timestamp=at)


def test_the_end_of_the_voice() -> None:
    """It is when the last loud frame was sent: neither the silence nor the room noise after it counts."""
    voice = [frame(3000, 1.0), frame(3000, 1.02), frame(50, 1.04), frame(0, 1.06), frame(0, 1.08)]
    assert end_of_voice(voice, 2.0) == 1.02
    assert end_of_voice(voice, 1.01) == 1.0
    assert end_of_voice(voice[3:], 2.0) is None
    assert end_of_voice([], 2.0) is None
