from __future__ import annotations

import math
from typing import Any

import pytest

from rtvi_sync import RTVIEvent, RTVIMessage
from rtvi_sync import messages as payloads
from rtvi_sync.events import Event
from rtvi_sync.testing.scenarios.stream import MAX_EVENTS, MAX_TEXT
from tests.testing.scenarios.rig import Rig, called, event, expected, heard, image, kinds, marked, stopped, written

pytestmark = pytest.mark.inside

STARTED, STOPPED = RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING
INTERRUPTED, USER = RTVIEvent.BOT_INTERRUPTED, RTVIEvent.USER_STARTED_SPEAKING


def tts(at: float, text: str) -> Event[Any]:
    return event(at, RTVIEvent.BOT_TTS_TEXT, payloads.BotTTSTextData(text=text))


def output(at: float, **fields: Any) -> Event[Any]:
    return event(at, RTVIEvent.BOT_OUTPUT, payloads.BotOutputData(**fields))


@pytest.mark.parametrize(
    ("name", "comes"),
    [
        ("user_started_speaking", event(1, USER)),
        ("user_stopped_speaking", event(1, RTVIEvent.USER_STOPPED_SPEAKING)),
        ("vad_user_started_speaking", event(1, RTVIEvent.VAD_USER_STARTED_SPEAKING)),
        ("vad_user_stopped_speaking", event(1, RTVIEvent.VAD_USER_STOPPED_SPEAKING)),
        ("user_transcription", heard(1, "hello")),
        ("user_backchannel", heard(1, "mhm", kind="backchannel")),
        ("bot_started_speaking", event(1, STARTED)),
        ("bot_stopped_speaking", event(1, STOPPED)),
        ("bot_interrupted", event(1, INTERRUPTED)),
        ("bot_backchannel", output(1, text="Mhm.", output_type="backchannel", spoken_status="completed")),
        ("llm_started", event(1, RTVIEvent.BOT_LLM_STARTED)),
        ("llm_response", written(1, "Hi")),
        ("llm_marker", marked(1, "✓ Hi")),
        ("tts_response", tts(1, "Hi")),
        ("function_call", called(1, "look")),
        ("function_call_stopped", stopped(1, "look")),
        ("image", image(1)),
    ],
)
def test_each_event(name: str, comes: Event[Any] | list[Event[Any]]) -> None:
    """Each event of the format has an event of the client, and is no other one."""
    rig = Rig(comes, speaks=True)
    rig.send()
    assert kinds(rig.match(expected(name))) == ["passed"]
    others = {"llm_started", name} if isinstance(comes, list) else {name}
    assert set(rig.stream.latest) - {"llm_response"} == others - {"llm_response"}


@pytest.mark.parametrize(
    "comes",
    [
        heard(1, "hel", final=False),
        heard(1, "hello", kind="chat"),
        event(1, RTVIEvent.USER_TRANSCRIPT, payloads.TranscriptData(text="hello")),
        output(1, text="Mhm.", output_type="backchannel", spoken_status="new"),
        output(1, text="Hello.", output_type="sentence", spoken_status="completed"),
        event(1, RTVIEvent.UNKNOWN_MESSAGE, RTVIMessage("something-else")),
        tts(1, "Hi"),
    ],
)
def test_what_is_no_event(comes: Event[Any]) -> None:
    """Interim and typed words, other outputs and messages, and in text modality speech, are no events."""
    rig = Rig(comes)
    rig.wait(2)
    assert rig.stream.take(math.inf, lambda _: True) is None


def test_transcripts_of_older_bots() -> None:
    """A bot that sends no user-input is taken by its final transcripts."""
    said = [
        event(1, RTVIEvent.USER_TRANSCRIPT, payloads.TranscriptData(text=text, final=text == "ab"))
        for text in ("a", "ab")
    ]
    rig = Rig(said, has_user_input=False)
    rig.send()
    assert rig.match(expected("user_transcription"))[0].matched == "ab"


def test_the_text_of_a_response() -> None:
    """The tokens of a run are one response when it stops, also none of them."""
    rig = Rig(written(1, "Hel", "lo"), written(2))
    rig.send()
    assert [match.matched for match in rig.match(*[expected("llm_response")] * 2)] == ["Hello", ""]


def test_a_greeting_before_the_first_send() -> None:
    """Events before a send are no answer to it, and the rest of a response in progress is none either."""
    begun, token, end = written(1, "Welcome!")
    rig = Rig(
        written(0.5, "Hi"),
        begun,
        Event(type=token.type, data=token.data, received_at=3),
        _at(end, 3),
        written(4, "Fine"),
    )
    rig.wait(2)
    rig.send()
    assert rig.match(expected("llm_response"))[0].matched == "Fine"


def _at(given: Event[Any], at: float) -> Event[Any]:
    return Event(type=given.type, data=given.data, received_at=at)


def test_events_that_are_delivered_late() -> None:
    """Messages that the bot sent before the user's send are dropped, even if they are delivered after it."""
    rig = Rig()
    rig.now = 2
    rig.send()
    for each in [*written(1, "Old"), event(1, STARTED), *written(3, "New")]:
        rig.stream.feed(each)
    assert rig.stream.is_bot_speaking
    assert rig.match(expected("llm_response"))[0].matched == "New"


def test_a_transcription_outlives_a_send() -> None:
    """Transcriptions of the user stay in the queue at a send: keys are reported just before it."""
    rig = Rig(heard(1, "press 1"), event(1, RTVIEvent.BOT_LLM_STARTED))
    rig.wait(2)
    rig.send()
    assert kinds(rig.match(expected("user_transcription", text_contains="press"))) == ["passed"]


def test_an_interruption_drops_what_waits() -> None:
    """At an interruption older events are dropped, but not that the user has started to speak."""
    rig = Rig(
        written(1, "Old"),
        called(1, "look"),
        event(2, USER),
        event(2.1, INTERRUPTED),
        event(3, RTVIEvent.BOT_LLM_STARTED),
    )
    rig.wait(4)
    rig.observe()
    names = ("user_started_speaking", "bot_interrupted", "llm_started", "function_call", "llm_response")
    assert kinds(rig.match(*map(expected, names))) == [*["passed"] * 3, "missing_function_call", "timeout"]


def test_words_behind_an_interruption() -> None:
    """The remaining text of an interrupted response is no response."""
    begun, token, end = written(1, "Once upon")
    rig = Rig(begun, token, event(2, INTERRUPTED), _at(token, 3), _at(end, 3), written(4, "Yes?"))
    rig.send()
    matches = rig.match(expected("bot_interrupted"), expected("llm_response"))
    assert [match.matched for match in matches] == ["", "Yes?"]


def test_whether_the_bot_speaks() -> None:
    """The bot speaks from its start to its stop, an interruption, or the end."""
    for stop in (event(2, STOPPED), event(2, INTERRUPTED), event(2, USER)):
        rig = Rig(event(1, STARTED), stop)
        rig.wait(1)
        assert rig.stream.is_bot_speaking
        rig.wait(2)
        assert not rig.stream.is_bot_speaking
    rig = Rig(event(1, STARTED), ends_at=2)
    rig.wait(2)
    assert not rig.stream.is_bot_speaking


def test_speech_that_was_talked_over() -> None:
    """The bot's speech before its next start is not the reply to a send over it, however late it is transcribed."""
    rig = Rig(
        event(1, STARTED), event(3, RTVIEvent.BOT_LLM_STARTED), event(3.5, STOPPED), event(4, STARTED), speaks=True
    )
    rig.wait(2)
    rig.send()
    rig.wait(4)
    rig.stream.hear("and so on", began=1, at=3.6)
    rig.stream.hear("Yes?", began=4, at=5)
    assert rig.match(expected("response"))[0].matched == "Yes?"


def test_speech_without_a_new_response() -> None:
    """Speech counts as an answer to a send if the model has started one since; silence is no speech."""
    rig = Rig(event(4, RTVIEvent.BOT_LLM_STARTED), speaks=True)
    rig.send()
    rig.stream.hear("One moment", began=1, at=2)
    rig.wait(4)
    rig.stream.hear(" ", began=4, at=5)
    rig.stream.hear("Fine", began=4, at=6)
    assert rig.match(expected("response"))[0].matched == "Fine"


def test_speech_in_a_call() -> None:
    """If no event reports on the model, the bot's voice is an answer when it starts after the send."""
    rig = Rig(event(1, STARTED), event(2, STOPPED), event(4, STARTED), speaks=True, tells_model=False)
    rig.wait(3)
    rig.send()
    rig.stream.hear("Welcome", began=1, at=3)
    rig.wait(4)
    rig.stream.hear("Fine", began=4, at=5)
    assert rig.match(expected("response"))[0].matched == "Fine"


def test_observing() -> None:
    """A turn that only observes takes the bot's next words, though its model has written nothing."""
    rig = Rig(written(1, "Old"), event(3, STARTED), speaks=True)
    rig.wait(2)
    rig.stream.observe(rig.now)
    rig.observe()
    rig.wait(3)
    rig.stream.hear("Still there", began=1, at=3)
    rig.stream.hear("Are you there?", began=3, at=4)
    assert rig.match(expected("response"))[0].matched == "Are you there?"


def test_a_first_turn_that_observes() -> None:
    """A first turn that only observes keeps earlier events: the greeting."""
    rig = Rig(written(1, "Welcome"))
    rig.wait(2)
    rig.observe()
    assert rig.match(expected("llm_response"))[0].matched == "Welcome"


def test_floods() -> None:
    """The text of a response, and the events of a turn, are bounded."""
    token = event(1, RTVIEvent.BOT_LLM_TEXT, payloads.BotLLMTextData(text="x" * 10_000))
    rig = Rig(event(1, RTVIEvent.BOT_LLM_STARTED), [token] * 150, event(1, RTVIEvent.BOT_LLM_STOPPED))
    rig.send()
    assert len(rig.match(expected("llm_response"))[0].matched) == MAX_TEXT
    rig = Rig([event(1, STARTED)] * (MAX_EVENTS + 10), event(2, STOPPED))
    rig.send()
    rig.wait(3)
    assert kinds(rig.match(expected("bot_stopped_speaking"))) == ["timeout"]
    assert rig.stream.position == MAX_EVENTS
    rig.send()
    rig.stream.feed(event(30, STOPPED))
    assert kinds(rig.match(expected("bot_stopped_speaking", within_ms=60_000))) == ["passed"]


def test_the_latest_times() -> None:
    """The latest event of each type is known, also of those that were dropped."""
    rig = Rig(event(1, STARTED), event(2, STARTED))
    rig.wait(3)
    rig.send()
    assert rig.stream.latest == {"bot_started_speaking": 2}
