"""What an answer is and when it is over, from events alone."""

from __future__ import annotations

from array import array

import pytest

from rtvi_sync import Event, RTVIEvent
from rtvi_sync.media import AudioFrame
from rtvi_sync.testing.embedded_bot.answers import Answer, AnswerClock, end_of_voice

E = RTVIEvent
SPOKEN = [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_STARTED_SPEAKING, E.BOT_LLM_STOPPED, E.BOT_STOPPED_SPEAKING]


def feed(clock: AnswerClock, *events: RTVIEvent, at: float = 11.0) -> list[tuple[str, float]]:
    """One event each second; what they complete, with its seconds."""
    told = []
    for second, type_ in enumerate(events):
        told += clock.take(Event(type=type_, data=None, received_at=at + second))
    return [(name, seconds) for name, _, seconds in told]


@pytest.mark.parametrize(
    ("aloud", "events", "told"),
    [
        (True, SPOKEN, [("first text", 2), ("first sound", 3), ("whole", 5)]),
        # It writes longer than it speaks.
        (
            True,
            [E.BOT_LLM_STARTED, E.BOT_STARTED_SPEAKING, E.BOT_STOPPED_SPEAKING, E.BOT_TTS_TEXT, E.BOT_LLM_STOPPED],
            [("first sound", 2), ("first text", 4), ("whole", 5)],
        ),
        # It says nothing of a language model.
        (
            True,
            [E.BOT_STARTED_SPEAKING, E.BOT_OUTPUT, E.BOT_STOPPED_SPEAKING],
            [("first sound", 1), ("first text", 2), ("whole", 3)],
        ),
        # It does not say what it says.
        (True, [E.BOT_STARTED_SPEAKING, E.BOT_STOPPED_SPEAKING], [("first sound", 1), ("whole", 2)]),
        # In writing, it need not speak; a run that only calls a function says nothing.
        (
            False,
            [E.BOT_LLM_STARTED, E.BOT_LLM_STOPPED, E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_LLM_STOPPED],
            [("first text", 4), ("whole", 5)],
        ),
    ],
)
def test_an_answer(aloud: bool, events: list[RTVIEvent], told: list[tuple[str, float]]) -> None:
    """Its parts are told once each, from the end of the user's turn; what follows belongs to no question."""
    clock = AnswerClock()
    clock.ask(10.0, aloud=aloud)
    assert feed(clock, *events) == told
    seconds = dict(told)
    assert list(clock.heard) == [
        Answer(text=seconds.get("first text"), sound=seconds.get("first sound"), whole=seconds["whole"])
    ]
    assert feed(clock, *SPOKEN) == []
    assert clock.give_up() is None


def test_handlers_lag() -> None:
    """What arrived before the question is no answer to it though it is seen after it, and neither is the rest of it."""
    clock = AnswerClock()
    clock.ask(10.0, aloud=True)
    assert feed(clock, *SPOKEN, at=1.0) == []  # a greeting that was over
    assert feed(clock, *SPOKEN) == [("first text", 2), ("first sound", 3), ("whole", 5)]
    clock.ask(20.0, aloud=True)
    assert feed(clock, *SPOKEN[:3], E.BOT_LLM_TEXT, at=17.5) == []  # one that was not
    assert feed(clock, *SPOKEN[3:], at=21.0) == []
    assert feed(clock, *SPOKEN, at=23.0) == [("first text", 4), ("first sound", 5), ("whole", 7)]


def test_nobody_asked() -> None:
    """A bot that greets answers nothing."""
    assert feed(AnswerClock(), *SPOKEN) == []


@pytest.mark.parametrize("sign", [E.BOT_INTERRUPTED, E.BOT_STOPPED_SPEAKING, E.BOT_LLM_STARTED])
def test_a_question_into_the_midst_of_an_answer(sign: RTVIEvent) -> None:
    """What the bot had begun to say before is no answer; from the sign that it has stopped on, it may be one."""
    clock = AnswerClock()
    feed(clock, E.BOT_LLM_STARTED, E.BOT_LLM_TEXT, E.BOT_STARTED_SPEAKING, at=1.0)
    clock.ask(10.0, aloud=True)
    assert feed(clock, E.BOT_LLM_TEXT, E.BOT_TTS_TEXT, sign, E.BOT_LLM_TEXT) == [("first text", 4)]


@pytest.mark.parametrize(
    ("aloud", "events", "missing"),
    [
        (True, [], "first sound"),
        (True, [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT], "first sound"),
        (True, [E.BOT_STARTED_SPEAKING], "whole"),
        (False, [], "first text"),
        (False, [E.BOT_LLM_STARTED, E.BOT_LLM_TEXT], "whole"),
    ],
)
def test_an_answer_that_does_not_come(aloud: bool, events: list[RTVIEvent], missing: str) -> None:
    """Who gives up is told what would have come next, once; what comes late is not told."""
    clock = AnswerClock()
    clock.ask(10.0, aloud=aloud)
    feed(clock, *events)
    assert clock.give_up() == (missing, 10.0)
    assert clock.give_up() is None
    assert feed(clock, *SPOKEN) == []


def test_the_end_of_a_session() -> None:
    """It ends what was asked before, and not what has been asked in the next one by then."""
    clock = AnswerClock()
    clock.ask(10.0, aloud=False)
    assert clock.end(9.0) is None
    assert clock.end(11.0) == ("first text", 10.0)
    feed(clock, E.BOT_STARTED_SPEAKING)
    clock.end(20.0)
    clock.ask(21.0, aloud=True)
    assert feed(clock, E.BOT_LLM_TEXT, at=22.0) == [("first text", 1)]


def frame(level: int, at: float) -> AudioFrame:
    """20 ms of noise."""
    return AudioFrame(pcm=array("h", [level, -level] * 160).tobytes(), sample_rate_hz=16_000, timestamp=at)


def test_the_end_of_a_voice() -> None:
    """It is where the last loud piece was sent: neither the silence after it counts nor what is left of the room."""
    voice = [frame(3000, 1.0), frame(3000, 1.02), frame(50, 1.04), frame(0, 1.06), frame(0, 1.08)]
    assert end_of_voice(voice, 2.0) == 1.02
    assert end_of_voice(voice, 1.01) == 1.0
    assert end_of_voice(voice[3:], 2.0) is None
    assert end_of_voice([], 2.0) is None
