from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import RTVIEvent
from tests.testing.scenarios.rig import Rig, called, event, expected, failed, heard, kinds, marked, stopped, written

pytestmark = pytest.mark.inside

STARTED, STOPPED = RTVIEvent.BOT_STARTED_SPEAKING, RTVIEvent.BOT_STOPPED_SPEAKING


def sent(*comes: Any, **options: Any) -> Rig:
    """Return a session in which the user has just said something."""
    rig = Rig(*comes, **options)
    rig.send()
    return rig


# -- the queue --------------------------------------------------------------------------------------------------------


def test_order() -> None:
    """Events are taken in their order; others may arrive between them."""
    rig = sent(event(1, STARTED), written(2, "Hi"), event(3, STOPPED))
    assert kinds(rig.match(*map(expected, ("llm_response", "bot_stopped_speaking")))) == ["passed", "passed"]


def test_a_call_behind_the_answer() -> None:
    """A call that is expected after the answer which followed it is missing."""
    rig = sent(called(1, "look"), written(2, "Rain"))
    matches = rig.match(expected("llm_response"), expected("function_call", calls=["look"]))
    assert kinds(matches) == ["passed", "missing_function_call"]


def test_from_the_start_of_the_turn() -> None:
    """With `check_from: turn_start`, skipped events of the same turn count, once each."""
    rig = sent(called(1, "look"), called(1, "find"), written(2, "Rain"))
    calls = [expected("function_call", calls=[name], check_from="turn_start") for name in ("find", "look", "look")]
    assert kinds(rig.match(expected("llm_response"), *calls)) == [*["passed"] * 3, "missing_function_call"]
    rig = sent(called(1, "look"), written(2, "Rain"))
    rig.match(expected("llm_response"))
    rig.send()
    assert kinds(rig.match(calls[1])) == ["missing_function_call"]


def test_limits_count_from_the_send() -> None:
    """All expectations of a turn count from its send, not from each other."""
    rig = sent(event(2, STARTED), written(3, "Hi"))
    started, late = expected("bot_started_speaking", within_ms=2500), expected("llm_response", within_ms=2500)
    assert kinds(rig.match(started, late)) == ["passed", "timeout"]
    assert rig.now == 2.5


def test_the_default_limit() -> None:
    """An expectation without a limit has the limit of the run."""
    assert kinds(sent(written(9.9, "Hi")).match(expected("llm_response"))) == ["passed"]
    (match,) = sent(written(10.1, "Hi")).match(expected("llm_response"))
    assert match.reason == "no matching llm_response came within 10000 ms"


def test_why_nothing_came() -> None:
    """The reason of a timeout lists the events that were taken before, skipped, or expected to be absent."""
    rig = sent(event(1, STARTED), written(1), called(1, "look"), written(2, "Hi"), speaks=True)
    _, _, taken = rig.match(expected("function_call", calls=["look"]), *[expected("llm_response")] * 2)
    assert taken.reason.endswith(
        "within 10000 ms; an earlier expectation has taken the one that came: put the conditions of both into one"
    )
    (passed_over,) = rig.match(expected("bot_started_speaking"))
    assert passed_over.reason.endswith(
        "; the bot_started_speaking came before expectation 0 was over: 'check_from: turn_start' lets it count"
    )
    (silent,) = sent(written(1, "Hi")).match(expected("bot_started_speaking"))
    assert silent.reason.endswith("; the bot is asked for no voice, because the modality of 'judge' is text")
    (mute,) = sent(written(1, "Hi"), speaks=True).match(expected("bot_started_speaking"))
    assert mute.reason.endswith("within 10000 ms")
    (phone,) = sent(tells_model=False).match(expected("bot_started_speaking"))
    assert phone.reason.endswith("within 10000 ms")


def test_why_an_answer_is_missing_after_a_call_that_never_came() -> None:
    """The reason names the answer and the expectation that passed it over, and no remedy by which it would fail."""
    for part, advice in (("Hi", ": 'check_from: turn_start' lets it count"), ("rain", "")):
        rig = sent(written(1, "Hi there"))
        call = expected("function_call", calls=["look"], within_ms=2000)
        matches = rig.match(call, expected("llm_response", text_contains=part, within_ms=5000))
        assert kinds(matches) == ["missing_function_call", "timeout"]
        assert matches[1].reason == (
            "no matching llm_response came within 5000 ms; "
            f"the llm_response 'Hi there' came before expectation 0 was over{advice}"
        )


def test_what_ends_a_turn() -> None:
    """After a timeout or the end of the call the other expectations are not tried; after other failures they are."""
    rig = sent(written(1, "Hi"), ends_at=2)
    wrong = expected("llm_response", text_excludes="Hi")
    matches = rig.match(wrong, expected("bot_started_speaking"), expected("llm_started"))
    assert kinds(matches) == ["text_present", "bot_ended"]


def test_what_came_before_the_end_counts() -> None:
    """Events that wait when the bot ends the call are taken."""
    rig = sent(written(1, "Bye"), ends_at=2)
    rig.wait(3)
    assert kinds(rig.match(expected("llm_response"), expected("image"))) == ["passed", "bot_ended"]


def test_what_came_in_time_but_is_looked_at_late() -> None:
    """An event counts by its own time, even if a slow judge delays the check."""
    rig = sent(written(1, "Hi"), event(2, STARTED), event(4, STOPPED), verdicts=[("yes", 9.0)])
    limit = {"within_ms": 3000}
    names = expected("bot_started_speaking", **limit), expected("bot_stopped_speaking", **limit)
    assert kinds(rig.match(expected("llm_response", eval="polite", **limit), *names)) == ["passed", "passed", "timeout"]


def test_a_response_without_text() -> None:
    """A response without text is an answer, unless the bot reports an error before it or soon after."""
    for comes, matched in (
        ([*written(1), failed(1.2, "no key"), *written(2, "Sorry")], "Sorry"),
        ([failed(1, "no key"), *written(2), *written(3, "Sorry")], "Sorry"),
        ([*written(1), failed(2, "no key"), *written(3, "Sorry")], ""),
    ):
        (match,) = sent(comes).match(expected("llm_response"))
        assert (match.verdict, match.matched) == ("passed", matched)


# -- texts ------------------------------------------------------------------------------------------------------------


def test_texts_add_up() -> None:
    """A reply with a text adds up, joined by a blank: "Let me look." is rolled past."""
    rig = sent(written(1, "Let me look."), written(2, "It rains"), written(3, "in Oslo."))
    (match,) = rig.match(expected("llm_response", text_contains="rains  in\nOslo"))
    assert match.matched == "Let me look. It rains in Oslo."


def test_a_text_that_never_comes() -> None:
    """Some texts arrived, none matched: that is no timeout, and the turn continues."""
    rig = sent(written(1, "Let me look."), event(2, STARTED))
    matches = rig.match(expected("llm_response", text_contains="rain", within_ms=3000), expected("image", within_ms=1))
    assert kinds(matches) == ["text_mismatch", "timeout"]
    assert "'Let me look.' does not contain 'rain'" in matches[0].reason


def test_case_counts() -> None:
    """A text is part of another by its characters."""
    assert kinds(sent(written(1, "Rain")).match(expected("llm_response", text_contains="rain"))) == ["text_mismatch"]


def test_excluded_texts() -> None:
    """A text that is excluded fails at once on the sum; alone it is looked for in the first event only."""
    rig = sent(written(1, "Let me look."), written(2, "Sorry,"), written(3, "it rains"))
    assert kinds(rig.match(expected("llm_response", text_contains="rains", text_excludes="look. Sorry"))) == [
        "text_present"
    ]
    assert rig.now == 2
    rig = sent(written(1, "Let me look."), written(2, "Sorry"))
    assert kinds(rig.match(expected("llm_response", text_excludes="Sorry"))) == ["passed"]


def test_the_first_event_without_demands() -> None:
    """Without a text or a criterion the first event counts, also an empty one."""
    assert sent(written(1), written(2, "Hi")).match(expected("llm_response"))[0].matched == ""


def test_transcriptions_add_up() -> None:
    """Transcriptions of the user add up, too."""
    rig = sent(heard(1, "press"), heard(2, "one"))
    assert rig.match(expected("user_transcription", text_contains="press one"))[0].matched == "press one"


# -- absent -----------------------------------------------------------------------------------------------------------


def test_absent() -> None:
    """No event of the type may arrive for a time after the send; an event that arrives fails at once."""
    rig = sent(written(1, "Hi"), called(3, "look", {"city": "Oslo"}))
    assert kinds(rig.match(expected("function_call", absent=True, within_ms=2900))) == ["passed"]
    assert rig.now == 2.9
    (match,) = rig.match(expected("function_call", absent=True, within_ms=5000))
    assert (match.kind, match.ends_turn) == ("unexpected_event", False)
    assert "look(city=Oslo)" in match.reason


def test_absent_at_the_end_of_the_call() -> None:
    """At the end of the call, absence is certain: the expectation passes at once."""
    rig = sent(ends_at=1)
    assert (
        rig.match(expected("llm_response", absent=True))[0].matched == "no llm_response before the bot ended the call"
    )


def test_absent_and_the_rest_of_a_reply() -> None:
    """The rest of a spoken reply that was matched is no new one; in text any counts."""
    rig = sent(event(1, RTVIEvent.BOT_LLM_STARTED), event(1, STARTED), speaks=True)
    rig.wait(2)
    rig.stream.hear("It rains.", began=1, at=2)
    rig.match(expected("response"))
    rig.stream.hear("Take an umbrella.", began=1, at=3)
    assert kinds(rig.match(expected("response", absent=True, within_ms=4000))) == ["passed"]
    for again in (event(5, STARTED), event(5, RTVIEvent.BOT_LLM_STARTED)):
        rig.stream.feed(again)
    rig.stream.hear("Hello?", began=5, at=6)
    assert kinds(rig.match(expected("response", absent=True))) == ["unexpected_event"]

    rig = sent(written(1, "It rains."), written(2, "Take an umbrella."))
    assert kinds(rig.match(expected("llm_response"), expected("llm_response", absent=True)))[1] == "unexpected_event"


# -- calls ------------------------------------------------------------------------------------------------------------


def test_calls_in_any_order() -> None:
    """All calls are needed, in any order, and others may arrive between them."""
    rig = sent(called(1, "b"), called(1, "c"), called(2, "a"))
    (match,) = rig.match(expected("function_call", calls=["a", "b"]))
    assert match.matched == "a, b"


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"city": "Oslo"}, "passed"),
        ({"city": "Oslo", "days": {"from": 1, "to": 2}}, "passed"),
        ({}, "passed"),
        ({"country": None}, "passed"),
        ({"city": "oslo"}, "function_args_mismatch"),
        ({"days": {"from": 1}}, "function_args_mismatch"),
        ({"country": "NO"}, "function_args_mismatch"),
    ],
)
def test_arguments(wanted: dict[str, Any], kind: str) -> None:
    """Arguments are a part of the top keys, each equal; one that is not there is as good as null."""
    rig = sent(called(1, "look", {"city": "Oslo", "days": {"from": 1, "to": 2}}))
    assert kinds(rig.match(expected("function_call", calls=[("look", wanted)]))) == [kind]


def test_a_corrected_call() -> None:
    """A call that the model repeats with other arguments counts."""
    rig = sent(called(1, "look", {"city": "O"}), called(2, "look", {"city": "Oslo"}))
    assert kinds(rig.match(expected("function_call", calls=[("look", {"city": "Oslo"})]))) == ["passed"]


def test_missing_calls() -> None:
    """The failure names the missing call, and the events that arrived."""
    (match,) = sent(called(1, "a"), called(2, "c")).match(expected("function_call", calls=["a", "b"]))
    assert (match.kind, match.reason) == ("missing_function_call", "no call of b came (matched: a)")
    assert not match.ends_turn
    (match,) = sent(called(1, "a")).match(expected("function_call", calls=[("b", {"x": 1})]))
    assert match.kind == "missing_function_call"
    (match,) = sent(called(1, "a"), ends_at=2).match(expected("function_call", calls=["b"]))
    assert match.kind == "bot_ended"


def test_any_call() -> None:
    """Without names any call counts, once."""
    rig = sent(called(1))
    assert kinds(rig.match(expected("function_call"), expected("function_call"))) == ["passed", "missing_function_call"]


def test_stopped_calls() -> None:
    """How a call has ended are its arguments."""
    rig = sent(stopped(1, "look", cancelled=True))
    wanted = expected("function_call_stopped", calls=[("look", {"cancelled": False})], check_from="turn_start")
    assert kinds(rig.match(wanted)) == ["function_args_mismatch"]
    rig = sent(stopped(1, "look", cancelled=True))
    wanted = expected("function_call_stopped", calls=[("look", {"cancelled": True})])
    assert kinds(rig.match(wanted)) == ["passed"]


def test_withheld_calls() -> None:
    """If the bot withholds names, a call without one is unsupported, not failed, and the wait is short."""
    wanted = expected("function_call", calls=["look"])
    assert kinds(sent(called(1)).match(wanted)) == ["missing_function_call"]
    rig = sent(called(1), withholds=True)
    (match,) = rig.match(wanted)
    assert match.verdict == "unsupported"
    assert "function_call_report_level" in match.reason
    assert rig.now == 3
    assert kinds(sent(called(1), called(2, "look"), withholds=True).match(wanted)) == ["passed"]
    assert kinds(sent(called(1, "find"), withholds=True).match(wanted)) == ["missing_function_call"]
    assert kinds(sent(called(1), withholds=True).match(expected("function_call"))) == ["passed"]


def test_what_comes_behind_a_withheld_call() -> None:
    """Events behind a call without a name are not passed over while one with a name is awaited."""
    rig = sent(called(1), event(1.2, STARTED), written(1.5, "It rains"), withholds=True)
    wanted = (
        expected("function_call", calls=["look"]),
        expected("llm_response"),
        expected("function_call", within_ms=4000),
    )
    started = expected("bot_started_speaking", check_from="turn_start")
    assert kinds(rig.match(*wanted[:2], started, wanted[2])) == [
        "unsupported",
        "passed",
        "passed",
        "missing_function_call",
    ]


def test_withheld_arguments() -> None:
    """A call whose name is reported may lack its arguments."""
    wanted = expected("function_call", calls=[("look", {"city": "Oslo"})])
    (match,) = sent(called(1, "look"), withholds=True).match(wanted)
    assert (match.verdict, "arguments" in match.reason) == ("unsupported", True)
    assert kinds(sent(called(1, "find"), withholds=True).match(wanted)) == ["missing_function_call"]
    assert kinds(sent(called(1, "look", {}), withholds=True).match(wanted)) == ["function_args_mismatch"]


# -- markers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "kind", "keys", "result"),
    [
        ("✓ Hi", "complete", {}, "passed"),
        ("✓ Hi", "complete", {"marker": "complete", "marker_first": True, "markers": 1, "text_after": True}, "passed"),
        ("◐", "long", {"marker": "incomplete", "text_after": False}, "passed"),
        ("○", "short", {"marker": "incomplete"}, "passed"),
        ("○", "short", {"marker": "long"}, "marker_mismatch"),
        ("✓", None, {"marker": "complete"}, "marker_mismatch"),
        ("✓ ✓", "complete", {"markers": 1}, "marker_format"),
        ("Hi ✓", "complete", {"marker_first": True}, "marker_format"),
        (" ✓ Hi", "complete", {"marker_first": False}, "marker_format"),
        ("Hi", "complete", {"marker_first": False, "markers": 0}, "passed"),
        ("Hi", "complete", {"text_after": False}, "marker_format"),
        ("✓ Hi", "complete", {"text_after": False}, "marker_format"),
        ("✓ ", "complete", {"text_after": True}, "marker_format"),
    ],
)
def test_markers(raw: str, kind: str | None, keys: dict[str, Any], result: str) -> None:
    """Meaning, place and number of the markers in the raw text."""
    assert kinds(sent(marked(1, raw, kind)).match(expected("llm_marker", **keys))) == [result]


# -- judging ----------------------------------------------------------------------------------------------------------


def test_a_reply_that_is_judged() -> None:
    """The judge is asked about the whole text, once the required text is there."""
    rig = sent(written(1, "Let me look."), written(2, "Rain"), written(3, "all day"), verdicts=["continue", "yes"])
    (match,) = rig.match(expected("llm_response", text_contains="Rain", eval="It tells the weather"))
    assert match.verdict == "passed"
    assert [ask.answer for ask in rig.asked] == ["Let me look. Rain", "Let me look. Rain all day"]


def test_a_judge_that_goes_on_waiting() -> None:
    """Never enough: its own kind of failure."""
    rig = sent(written(1, "Well"), verdicts=["continue"])
    assert kinds(rig.match(expected("llm_response", eval="It answers"))) == ["judge_continue"]
    assert rig.now == 10


def test_empty_responses_are_not_judged() -> None:
    """An empty response is rolled past."""
    rig = sent(written(1), written(2, "Hi"), verdicts=["yes"])
    assert kinds(rig.match(expected("llm_response", eval="It greets"))) == ["passed"]
    assert [ask.answer for ask in rig.asked] == ["Hi"]
    assert kinds(sent(written(1), verdicts=[]).match(expected("llm_response", eval="It greets"))) == ["judge_continue"]


def test_a_no_waits_for_the_rest() -> None:
    """For 2 s, or while the bot speaks; the rest may turn it."""
    rig = sent(written(1, "Hm."), written(2.9, "Hello!"), verdicts=["no", "yes"])
    assert kinds(rig.match(expected("llm_response", eval="It greets"))) == ["passed"]
    rig = sent(written(1, "Hm."), written(3.1, "Hello!"), verdicts=["no"])
    (match,) = rig.match(expected("llm_response", eval="It greets"))
    assert (match.kind, match.reason, rig.now) == ("judge_no", "the judge said no to 'Hm.': so it is", 3)
    rig = sent(event(0.5, STARTED), written(1, "Hm."), written(6, "Hello!"), verdicts=["no", "yes"])
    assert kinds(rig.match(expected("llm_response", eval="It greets"))) == ["passed"]
    rig = sent(written(1, "Hm."), ends_at=2, verdicts=["no"])
    assert kinds(rig.match(expected("llm_response", eval="It greets"))) == ["judge_no"]


def test_a_judge_that_fails() -> None:
    """An error of the judge is an error, not a no."""
    rig = sent(written(1, "Hi"), verdicts=["error"])
    assert kinds(rig.match(expected("llm_response", eval="It greets"))) == ["error"]


def test_calls_are_judged_one_by_one() -> None:
    """Each call that is matched; "continue" is a no, because a call has no rest."""
    rig = sent(called(1, "a", {"x": 1}), called(2, "b"), verdicts=["yes", "continue"])
    (match,) = rig.match(expected("function_call", calls=["a", "b"], eval="It is safe"))
    assert (match.kind, match.reason) == ("judge_no", "the judge said continue to b(): so it is")
    assert [ask.answer for ask in rig.asked] == ['a({"x": 1})', "b({})"]
    assert rig.asked[0].call == ("a", {"x": 1})


def test_other_events_are_judged() -> None:
    """A single event is judged by its text, if it has one."""
    rig = sent(heard(1, "hello"), verdicts=["yes"])
    assert kinds(rig.match(expected("user_transcription", eval="A greeting"))) == ["passed"]
    rig = sent(event(1, STARTED), verdicts=[])
    assert kinds(rig.match(expected("bot_started_speaking", eval="Loud"))) == ["no_content"]


def test_without_a_judge() -> None:
    """All else is checked, and it is not judged; that is no success."""
    rig = sent(written(1, "Let me look."), written(2, "Rain"))
    (match,) = rig.match(expected("llm_response", text_contains="Rain", eval="It tells the weather"))
    assert (match.verdict, match.kind, match.matched) == ("not_judged", None, "Let me look. Rain")
    wrong = expected("llm_response", text_contains="Sun", eval="It tells the weather")
    assert kinds(sent(written(1, "Rain")).match(wrong)) == ["judge_continue"]
    assert kinds(sent().match(expected("llm_response", eval="It greets"))) == ["timeout"]
    assert kinds(sent(called(1, "a")).match(expected("function_call", calls=["a"], eval="Safe"))) == ["not_judged"]
    assert kinds(sent(called(1, "a")).match(expected("function_call", calls=["b"], eval="Safe"))) == [
        "missing_function_call"
    ]
    assert kinds(sent(heard(1, "hi")).match(expected("user_transcription", eval="A greeting"))) == ["not_judged"]


# -- doors ------------------------------------------------------------------------------------------------------------


def test_what_a_door_may_not_tell() -> None:
    """An event that a door may not report is checked if it has arrived, else it is unsupported; no other is skipped."""
    rig = sent(marked(1, "✓ Hi"), written(2, "Hi"))
    rig.wait(3)
    assert rig.answer_now(expected("vad_user_started_speaking")).verdict == "unsupported"
    assert rig.answer_now(expected("llm_marker", marker="complete")).verdict == "passed"
    assert rig.answer_now(expected("llm_marker", marker="complete")).verdict == "unsupported"
    assert kinds(rig.match(expected("llm_started"), expected("llm_response"))) == ["passed", "passed"]
    rig = sent(marked(1, "✓ Hi"))
    rig.match(expected("llm_response"))
    assert rig.answer_now(expected("llm_marker", marker="long")).kind == "marker_mismatch"
