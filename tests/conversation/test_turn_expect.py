"""Expectations of a turn, and the text of their failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import (
    ErrorData,
    ExpectationError,
    ReportedFunctionCall,
    TimelineEntry,
    Turn,
    TurnAudio,
    TurnTimings,
    UsageError,
)
from rtvi_sync.conversation.turn import timeline_of

pytestmark = pytest.mark.inside

CALL = ReportedFunctionCall(function_name="get_weather", arguments={"city": "Bergen", "unit": "C"})
TIMINGS = TurnTimings(user_stopped=1.0, first_audio=1.5)
CUT = {"bot_text": 99_999 * "a"}  # a blank at its end counted for the limit


def turn_of(**fields: Any) -> Turn:
    given = {"status": "complete", "bot_text": "It is raining.", "modality": "audio", "timings": TIMINGS, **fields}
    return Turn(number=2, session=1, initiator="user", bot="RTVI 2.2.0", **given)


@pytest.mark.parametrize(
    "demands",
    [
        {},
        {"contains": "raining"},
        {"contains": ["It is", "israining."]},
        {"excludes": ["snow", "It was"]},
        {"matches": r"rain\w+"},
        {"matches": re.compile("^it", re.I)},
        {"calls": ["get_weather"]},
        {"calls": [("get_weather", {"city": "Bergen"})]},
        {"calls": {"get_weather": None}},
        {"absent_calls": ["get_time"]},
        {"voice_to_voice": 0.5, "first_audio": 0.5},
    ],
)
def test_met(demands: dict[str, Any]) -> None:
    """expect() returns the turn if all demands are met."""
    turn = turn_of(function_calls=(CALL,))
    assert turn.expect(**demands) is turn


@pytest.mark.parametrize(
    ("fields", "demands", "kind", "words"),
    [
        ({}, {"contains": "snow"}, "text_mismatch", "expected the bot to say 'snow'\nbut it said 'It is raining.'"),
        ({}, {"matches": "^rain"}, "text_mismatch", "matches '^rain'"),
        ({}, {"matches": re.compile("^rain")}, "text_mismatch", "matches '^rain'"),
        ({}, {"excludes": "rain"}, "text_present", "not to say 'rain'"),
        (CUT, {"excludes": "snow"}, "text_present", "aaa…', cut at 100,000 characters"),
        (CUT, {"contains": "snow"}, "text_mismatch", "aaa…', cut at 100,000 characters"),
        (CUT, {"matches": "snow"}, "text_mismatch", "aaa…', cut at 100,000 characters"),
        ({}, {"calls": ["get_weather"]}, "missing_function_call", "it called no function"),
        ({"function_calls": (CALL,)}, {"calls": ["f"]}, "missing_function_call", "it called get_weather"),
        (
            {"function_calls": (ReportedFunctionCall(function_name="\x1b[2Jf\n"),)},
            {"calls": ["f"]},
            "missing_function_call",
            "it called  [2Jf ",
        ),
        (
            {"function_calls": (CALL,)},
            {"calls": {"get_weather": {"city": "Oslo"}}},
            "function_args_mismatch",
            'a call of get_weather with {"city": "Oslo"}\nbut it was called with {"city": "Bergen", "unit": "C"}',
        ),
        ({"function_calls": (ReportedFunctionCall(),)}, {"calls": ["f"]}, "missing_function_call", "report_level"),
        ({"function_calls": (CALL,)}, {"absent_calls": ["get_weather"]}, "unexpected_event", "no call of get_weather"),
        ({"function_calls": (ReportedFunctionCall(),)}, {"absent_calls": ["f"]}, "unexpected_event", "report_level"),
        ({}, {"voice_to_voice": 0.4}, "latency", "voice to voice within 0.4 s\nbut it was 0.500 s"),
        ({"modality": "text"}, {"voice_to_voice": 9}, "latency", "it was not measured: the user did not speak"),
        ({"timings": TurnTimings()}, {"voice_to_voice": 9}, "latency", "it was not measured: no audio arrived"),
        ({"status": "interrupted"}, {}, "interrupted", "a complete answer\nbut it is interrupted"),
        ({}, {"interrupted": True}, "interrupted", "an answer that is interrupted"),
        ({"errors": (ErrorData(message="no\nkey", fatal=False),)}, {}, "error", "reported 'no key'"),
        ({"status": "failed"}, {}, "bot_ended", "the session ended first"),
    ],
)
def test_not_met(fields: dict[str, Any], demands: dict[str, Any], kind: str, words: str) -> None:
    """The error has the kind, the expected and the actual value, and the turn."""
    turn = turn_of(**fields)
    with pytest.raises(ExpectationError, match=re.escape(words)) as raised:
        turn.expect(**demands)
    assert (raised.value.kind, raised.value.turn) == (kind, turn)
    assert f"[{kind}]" in str(raised.value)
    assert "turn 2, RTVI 2.2.0" in raised.value.timeline
    assert isinstance(raised.value, AssertionError)


def test_accents_in_either_encoding() -> None:
    """Text that looks the same is equal, in the text and in the expectation."""
    for text, part in (("Cafe\u0301", "Caf\u00e9"), ("Caf\u00e9", "Cafe\u0301")):
        turn = turn_of(bot_text=f"The {text}.")
        turn.expect(contains=part, matches=f"^The {part}").expect(matches=re.compile(part.upper(), re.I))
        with pytest.raises(ExpectationError, match="not to say"):
            turn.expect(excludes=part)


def test_a_range_of_characters_that_have_another_form() -> None:
    """A pattern keeps its meaning, even if its characters have other forms."""
    turn = turn_of(bot_text="\u4f60\u597d")
    for pattern in ("[\ufb1d-\ufb4f]", "[\uf900-\ufa6d]"):
        with pytest.raises(ExpectationError, match="match"):
            turn.expect(matches=pattern)


def test_arguments_as_they_come_over_the_wire() -> None:
    """A tuple arrives as a list, and a number that is a key as text."""
    call = ReportedFunctionCall(function_name="f", arguments={"cities": ["Oslo", "Bergen"], "by_day": {"1": ["rain"]}})
    turn_of(function_calls=(call,)).expect(calls={"f": {"cities": ("Oslo", "Bergen"), "by_day": {1: ("rain",)}}})


def test_a_turn_that_is_not_over() -> None:
    """The missing parts may still arrive."""
    with pytest.raises(ExpectationError, match="it is in progress") as raised:
        turn_of(status="in_progress").expect(excludes="snow")
    assert raised.value.kind == "timeout"


def test_allowed_faults() -> None:
    """expect() accepts an interruption and errors if its arguments allow them."""
    turn_of(status="interrupted").expect(interrupted=True)
    turn_of(status="failed", errors=(ErrorData(message="no", fatal=False),)).expect(errors=True)


def test_the_timeline() -> None:
    """The timeline counts from its first entry, is cut in the middle, and has no control characters."""
    entries = [TimelineEntry(10.0, "you", "typed", "Hi\x1b[2J\nyou"), TimelineEntry(10.5, "", "acknowledged")]
    lines = timeline_of(turn_of(timeline=tuple(entries))).splitlines()
    assert lines[0] == "  turn 2, RTVI 2.2.0"
    assert lines[1].startswith('      0.000  you   "Hi')
    assert "\x1b" not in lines[1]
    assert lines[2] == "      0.500  ..    acknowledged"
    many = tuple(TimelineEntry(float(n), "bot", "speaks") for n in range(100))
    lines = timeline_of(turn_of(timeline=many)).splitlines()
    assert len(lines) == 42
    assert "60 more" in lines[21]


def test_the_words_of_a_timeline() -> None:
    """The speech is quoted, calls have their arguments and results, and the first speech has the latency."""
    entries = (
        TimelineEntry(10.0, "bot", "calls", 'get_weather({"city": "Bergen"})'),
        TimelineEntry(10.5, "bot", "speaks", "Let me check that for you."),
        TimelineEntry(11.0, "bot", "returned", 'get_weather {"temperature": 12}'),
        TimelineEntry(11.5, "bot", "silent"),
        TimelineEntry(12.0, "bot", "speaks", "It is"),
    )
    lines = [line.split(None, 1)[1] for line in timeline_of(turn_of(timeline=entries)).splitlines()[1:]]
    assert lines == [
        'bot   calls get_weather({"city": "Bergen"})',
        'bot   speaks: "Let me check that for you."',
        'bot   get_weather returned {"temperature": 12}',
        "bot   silent                                     voice-to-voice 0.50 s",
        'bot   speaks: "It is"',
    ]
    open_turn = turn_of(timeline=entries, status="in_progress")
    assert timeline_of(open_turn).splitlines()[-1] == '  >   2.000  bot   speaks: "It is"'


def test_all_that_is_not_met() -> None:
    """The error has every demand that the turn does not meet, the first one as its own, and one timeline."""
    turn = turn_of(function_calls=(CALL,), timeline=(TimelineEntry(at=0.0, who="you", kind="typed", text="Hello"),))
    with pytest.raises(ExpectationError) as caught:
        turn.expect(contains="snow", calls={"get_weather": {"city": "Oslo"}}, first_audio=0.1)
    text = str(caught.value)
    assert re.findall(r"\[(\w+)\]", text) == ["text_mismatch", "function_args_mismatch", "latency"]
    assert text.count("(typed)") == 1
    assert caught.value.kind == "text_mismatch"
    assert [kind for _, _, kind in caught.value.others] == ["function_args_mismatch", "latency"]


VOICE = TurnAudio(pcm=bytes(16_000), sample_rate_hz=8_000)


def hears(text: Any) -> Callable[[bytes, int], Any]:
    """Return a function that finds this text in the audio of `VOICE`."""

    def transcribe(pcm: bytes, sample_rate_hz: int) -> Any:
        assert (pcm, sample_rate_hz) == (VOICE.pcm, VOICE.sample_rate_hz)
        return text

    return transcribe


def test_the_words_of_the_voice() -> None:
    """A function's findings in the bot's audio are returned, of any type."""
    assert turn_of(audio=VOICE).transcribe(hears("it is training")) == "it is training"
    with pytest.raises(UsageError, match="no audio to transcribe: the bot did not speak"):
        turn_of().transcribe(hears("it is raining"))
    with pytest.raises(TypeError, match="must return a str, and has returned NoneType"):
        turn_of(audio=VOICE).transcribe(hears(None))
    with pytest.raises(ZeroDivisionError):
        turn_of(audio=VOICE).transcribe(lambda pcm, rate: f"{1 / 0}")


@pytest.mark.parametrize(
    ("fields", "demands"),
    [
        ({}, {"wer": 0, "reference": "it is RAINING"}),
        ({}, {"wer": 0.34, "reference": "it is snowing"}),
        ({"audio": VOICE, "spoken_text": "It is"}, {"wer": 0, "transcribe": hears("it is")}),
    ],
)
def test_few_errors(fields: dict[str, Any], demands: dict[str, Any]) -> None:
    """The bot's text is compared with a reference, or the heard text with the spoken one."""
    turn = turn_of(**fields)
    assert turn.expect(**demands) is turn


NOT_KNOWN = {"bot_text": None, "spoken_text": None, "user_text": None}


@pytest.mark.parametrize(
    ("fields", "demands", "kind", "words"),
    [
        (
            {},
            {"wer": 0.3, "reference": "It is snowing."},
            "text_mismatch",
            "a word error rate of at most 0.3 for 'It is snowing.'\nbut it is 0.33 for 'It is raining.'",
        ),
        (
            {"audio": VOICE, "spoken_text": "It is raining."},
            {"wer": 0.1, "transcribe": hears("it is training")},
            "text_mismatch",
            "0.33 for 'it is training'",
        ),
        (
            {"audio": VOICE, "bot_text": "right"},
            {"wer": 0, "transcribe": hears("wrong"), "reference": "right"},
            "text_mismatch",
            "1 for 'wrong'",
        ),
        ({}, {"wer": 0.1, "transcribe": hears("")}, "text_mismatch", "it has no audio: the bot did not speak"),
        (NOT_KNOWN, {"wer": 0.1, "reference": "It"}, "not_judged", "not known over this transport"),
        ({**NOT_KNOWN, "audio": VOICE}, {"wer": 0.1, "transcribe": hears("it")}, "not_judged", "not known over this"),
    ],
)
def test_too_many_errors(fields: dict[str, Any], demands: dict[str, Any], kind: str, words: str) -> None:
    """The error has both texts and the rate; where one of them is not known, nothing is judged."""
    with pytest.raises(ExpectationError, match=re.escape(words)) as raised:
        turn_of(**fields).expect(**demands)
    assert raised.value.kind == kind


def test_words_over_a_transport_without_messages() -> None:
    """A function's transcript is compared with a reference if no other text is known."""
    turn = turn_of(**NOT_KNOWN, audio=VOICE)
    assert turn.expect(wer=0, reference="It is raining.", transcribe=hears("it is raining")) is turn


@pytest.mark.parametrize(
    ("demands", "words"),
    [
        ({"wer": 0.1}, "wer needs reference"),
        ({"reference": "It"}, "go with wer"),
        ({"transcribe": hears("it")}, "go with wer"),
    ],
)
def test_an_error_rate_of_nothing(demands: dict[str, Any], words: str) -> None:
    """A rate needs something to compare."""
    with pytest.raises(ValueError, match=words):
        turn_of(audio=VOICE).expect(**demands)


@pytest.mark.parametrize(
    ("name", "near"), [("contain", "contains"), ("call", "calls"), ("firstAudio", "first_audio"), ("error", "errors")]
)
def test_a_misspelt_demand(name: str, near: str) -> None:
    """The error has the nearest name, and all names."""
    demands: dict[str, Any] = {name: "nine"}
    with pytest.raises(TypeError) as caught:
        turn_of().expect(**demands)
    start = f"expect() has no {name}; did you mean {near}? It has contains, excludes, matches, calls, "
    assert str(caught.value).startswith(start)
    with pytest.raises(TypeError, match=r"^expect\(\) has no nonsense; it has contains, .*, errors$"):
        turn_of().expect(nonsense=1)  # type: ignore[arg-type]
