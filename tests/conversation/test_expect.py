"""Expectations in time, each met and failed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import Event, Expect, ExpectationError, RTVIClient, RTVIError, RTVIEvent, RTVIMessage
from tests.support.clients import bot_says, settle
from tests.support.probes import waiting_calls
from tests.support.scripted_talk import TalkingBot, begun, finished, hangs_up, says, written
from tests.support.scripted_talk import said as says_aloud
from tests.support.slowness import GUARD, at_some_limit
from tests.support.waiting import until


def call_of(name: str, **arguments: Any) -> list[RTVIMessage]:
    data = {"function_name": name, "tool_call_id": "1", "arguments": arguments}
    return [
        RTVIMessage("llm-function-call-started", {"function_name": name}),
        RTVIMessage("llm-function-call-in-progress", data),
    ]


@pytest.mark.parametrize("events", ["thread", "manual"])
def test_in_order(events: Any) -> None:
    """Each looks from where the one before was met; others may lie between."""
    with TalkingBot().client(events=events) as client, client.expect(within=GUARD) as expect:
        says(client, call_of("get_weather", city="Oslo", unit="C"))
        client.send_text("one two")
        assert expect.call("get_weather", city="Oslo").data.arguments["unit"] == "C"
        assert expect.text("said one") == "You said one two"
        assert expect.event("bot-stopped-speaking").type == "botStoppedSpeaking"
        assert expect.event("bot-llm-started", check_from="start").type == "botLlmStarted"
        assert expect.turn(contains="two").bot_text == "You said one two"
        expect.no_more(for_=0.0)
        expect.absent("metrics", for_=0.0)


def test_one_call_counts_once() -> None:
    """A call that is announced by several messages counts once."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        says(client, [*call_of("get_weather"), RTVIMessage("llm-function-call", call_of("get_weather")[1].data)])
        settle(client)
        expect.call("get_weather")
        with pytest.raises(ExpectationError, match="missing_function_call"):
            expect.call("get_weather", within=0.0)


def test_a_block_knows_nothing_of_the_block_before() -> None:
    """An object whose block is entered again ignores earlier events, and finds a call with the same id."""
    with TalkingBot().client() as client:
        expect = client.expect(GUARD)
        for number in range(2):
            with expect:
                with pytest.raises(ExpectationError, match="did not arrive"):
                    expect.event("server-message", within=0.0)
                bot_says(client, "server-message", number)
                says(client, call_of("get_weather"))
                settle(client)
                assert expect.event("server-message").data == number
                expect.call("get_weather")


def test_arguments_as_they_come_over_the_wire() -> None:
    """A tuple in the expected arguments equals the list received over the wire."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        says(client, call_of("get_weather", cities=["Oslo", "Bergen"]))
        hangs_up(client)
        expect.call("get_weather", cities=("Oslo", "Bergen"))


def test_after_an_absence() -> None:
    """The limit of the next expectation counts from the end of the absence."""

    def check(limit: float) -> None:
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            expect.absent("metrics", for_=limit)
            bot_says(client, "server-message", 1)
            assert expect.event("server-message", within=limit).data == 1

    at_some_limit(check)


def test_what_comes_after_an_absence() -> None:
    """An event after the time of an absence does not break it, even if it has arrived before the check, and the next
    expectation finds it.
    """
    with TalkingBot().client() as client, client.expect(GUARD) as expect:

        def more_follows(event: Event[Any]) -> bool:
            if event.data == 1:
                bot_says(client, "server-message", 2)
                settle(client)
            return bool(event.data == 2)

        bot_says(client, "server-message", 1)
        settle(client)
        expect.absent("server-message", for_=0.0, where=more_follows)
        assert expect.event("server-message", where=lambda event: event.data == 2).data == 2


def test_where() -> None:
    """where= skips events that do not meet it."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        for number in range(3):
            bot_says(client, "server-message", number)
        assert expect.event("server-message", where=lambda event: event.data == 1).data == 1
        assert expect.event("server-message").data == 2


@pytest.mark.parametrize(
    ("demand", "kind", "words"),
    [
        (
            lambda e: e.event("server-message", within=0.0),
            "timeout",
            "server-message within 0 s\nbut it did not arrive",
        ),
        (lambda e: e.text("snow", within=0.0), "text_mismatch", "say 'snow' within 0 s\nbut it said 'You said one'"),
        (lambda e: e.text(matches="^one", within=0.0), "text_mismatch", "/^one/"),
        (lambda e: e.call("f", within=0.0), "missing_function_call", "it called get_weather"),
        (
            lambda e: e.call("get_weather", city="Bergen", within=0.0),
            "function_args_mismatch",
            'but it was called with {"city": "Oslo"}',
        ),
        (lambda e: e.call("f", a=1, within=0.0), "missing_function_call", "it called get_weather"),
        (lambda e: e.turn(contains="snow"), "text_mismatch", "'snow'"),
        (lambda e: (e.turn(), e.turn(within=0.0)), "timeout", "a turn to end within 0 s\nbut none did"),
        (lambda e: e.absent("bot-started-speaking", for_=0.0), "unexpected_event", "but it came"),
        (lambda e: e.no_more(for_=0.0), "unexpected_event", "nothing more for 0 s\nbut it sent bot-llm-started"),
    ],
)
def test_not_met(demand: Callable[[Expect], object], kind: str, words: str) -> None:
    """An expectation that is not met raises an error with its kind, its reason, the turn and the timeline."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        client.send_text("one")
        says(client, call_of("get_weather", city="Oslo"))
        settle(client)
        with pytest.raises(ExpectationError) as raised:
            demand(expect)
        assert raised.value.kind == kind
        assert words in str(raised.value)
        assert raised.value.turn is not None
        assert "turn " in raised.value.timeline


def test_no_call_at_all() -> None:
    """If the bot called no function, the error says so, and has no turn."""
    with TalkingBot().client() as client, client.expect(0.0) as expect:
        with pytest.raises(ExpectationError, match="it called no function") as raised:
            expect.call("f", a=1)
        assert (raised.value.kind, raised.value.turn, raised.value.timeline) == ("missing_function_call", None, "")


def test_too_late() -> None:
    """An event after its limit does not count, even if it is there at the time of the check."""
    with TalkingBot().client() as client, client.expect() as expect:
        with pytest.raises(ExpectationError, match="did not arrive"):
            expect.event("server-message", within=0.01)
        bot_says(client, "server-message", 1)
        settle(client)
        with pytest.raises(ExpectationError, match="it arrived after"):
            expect.event("server-message", within=0.0)
        assert expect.event("server-message", within=GUARD).data == 1


@pytest.mark.parametrize("what", ["what was met last", "the last message sent"])
def test_where_the_limit_counts_from(what: str) -> None:
    """The limit of an expectation counts from the last one that was met, or from the last message."""

    def check(limit: float) -> None:
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            with pytest.raises(ExpectationError, match="did not arrive"):
                expect.event("metrics", within=2 * limit)
            if what == "what was met last":
                bot_says(client, "server-message", 1)
                bot_says(client, "server-message", 2)
                expect.event("server-message")
                assert expect.event("server-message", within=limit).data == 2
            else:
                client.send_text("x")
                assert expect.text("You said", within=limit) == "You said x"

    at_some_limit(check)


def test_the_end_of_the_session_fails_what_is_awaited() -> None:
    """The end of the session fails an event that is awaited, and meets absent() and no_more()."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        hangs_up(client)
        with pytest.raises(ExpectationError, match="before the session ended") as raised:
            expect.event("metrics")
        assert raised.value.kind == "bot_ended"
        expect.absent("metrics", for_=GUARD)
        expect.no_more(for_=GUARD)


def called(type_: str, id_: str = "1", **data: Any) -> RTVIMessage:
    return RTVIMessage(f"llm-function-call{type_}", {"tool_call_id": id_, "function_name": "f", **data})


ANNOUNCED = RTVIMessage("llm-function-call-started", {})
STOPPED = RTVIMessage("bot-stopped-speaking", None)


class TestNoMore:
    """All signs of the bot's activity count, from its first to its last."""

    @pytest.mark.parametrize(
        "more",
        [
            [RTVIMessage("bot-llm-text", {"text": "and"})],
            [RTVIMessage("bot-tts-text", {"text": "and"})],
            [RTVIMessage("bot-output", {"text": "and", "spoken": True})],
            finished("and so on")[:1],
            [STOPPED],
            [called("-in-progress", "2")],
            [ANNOUNCED, ANNOUNCED],
        ],
    )
    @pytest.mark.parametrize("is_called", [False, True])
    def test_each_sign(self, more: list[RTVIMessage], is_called: bool) -> None:
        """Words count, and the end of speech, which tells that there was some; so does a further call."""
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            if is_called:
                says(client, [called("")])
                expect.call("f")
            says(client, more)
            settle(client)
            with pytest.raises(ExpectationError, match=f"it sent {more[-1].type}"):
                expect.no_more(for_=0.0)

    def test_speech_that_has_begun(self) -> None:
        """no_more() fails while the bot speaks, and is met when the speech has stopped."""
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            says(client, begun("Once upon a time."))
            expect.event("bot-started-speaking")
            with pytest.raises(ExpectationError, match="it was speaking"):
                expect.no_more(for_=0.0)
            says(client, [STOPPED])
            expect.event("bot-stopped-speaking")
            expect.no_more(for_=0.0)

    def test_speech_that_had_begun_before_the_block(self) -> None:
        """no_more() fails during speech that started before the block."""
        with TalkingBot().client() as client:
            assert client.turns() == ()
            says(client, begun("Once upon a time."))
            settle(client)
            with client.expect(GUARD) as expect:
                with pytest.raises(ExpectationError, match="it was speaking"):
                    expect.no_more(for_=0.0)
                says(client, finished("Once upon a time."))
                expect.turn()
                expect.no_more(for_=0.0)

    def test_a_text_that_was_met_as_it_was_written(self) -> None:
        """A text that was met as it was written is spoken later; then no_more() fails until the turn is met, too."""
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            says(client, written("Once upon a time."))
            expect.text("time")
            expect.event("bot-llm-stopped")
            expect.no_more(for_=0.0)
            says(client, [*begun("Once upon a time."), *finished("Once upon a time.")])
            settle(client)
            with pytest.raises(ExpectationError, match="it sent bot-output"):
                expect.no_more(for_=0.0)
            expect.turn(contains="time")
            expect.no_more(for_=0.0)

    def test_a_call_whose_announcement_was_met(self) -> None:
        """An announcement that was met covers the next call with an id, and no other call."""
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            says(client, [ANNOUNCED, called("-in-progress"), called("")])
            settle(client)
            expect.event(RTVIEvent(ANNOUNCED.type))
            expect.no_more(for_=0.0)
            says(client, [called("-in-progress", "2")])
            settle(client)
            with pytest.raises(ExpectationError, match="it sent llm-function-call-in-progress"):
                expect.no_more(for_=0.0)

    @pytest.mark.parametrize("first", ["", "-in-progress"])
    def test_a_call_that_was_met(self, first: str) -> None:
        """A function call that was met covers all its messages, in any order."""
        rest = [called(""), called("-in-progress", arguments={}), ANNOUNCED, called("-stopped", result=1)]
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            says(client, [called(first), *rest])
            settle(client)
            expect.call("f")
            expect.no_more(for_=0.0)

    def test_what_was_interrupted(self) -> None:
        """A late word of interrupted speech and its end do not fail no_more()."""
        with TalkingBot().client() as client, client.expect(GUARD) as expect:
            says(client, begun("Once upon a time."))
            says(client, [RTVIMessage("bot-interrupted", None), RTVIMessage("bot-tts-text", {"text": "upon"}), STOPPED])
            settle(client)
            expect.event("bot-interrupted")
            expect.no_more(for_=0.0)


class TestText:
    """The text that the bot wrote or said counts."""

    def said(self, *messages: RTVIMessage, contains: str, within: float = GUARD) -> str:
        with TalkingBot().client() as client, client.expect() as expect:
            says(client, messages)
            settle(client)
            return expect.text(contains, within=within)

    def output(self, text: str, segment_id: int | None = None, **data: Any) -> RTVIMessage:
        return RTVIMessage("bot-output", {"text": text, "segment_id": segment_id, **data})

    def progress(self, text: str, spoken: str, segment_id: int) -> RTVIMessage:
        progress = {"accumulated_text": spoken, "remaining_text": text[len(spoken) :]}
        return self.output(text, segment_id, spoken_status="in-progress", spoken_progress=progress)

    @pytest.mark.parametrize(
        "announced",
        [
            {"spoken_status": "new", "will_be_spoken": True},
            {"spoken_status": "new", "will_be_spoken": False},
            {
                "spoken_status": "new",
                "spoken_progress": {"accumulated_text": "Once upon a time.", "remaining_text": ""},
            },
            {"spoken": False},
        ],
    )
    def test_an_announcement(self, announced: dict[str, Any]) -> None:
        """An announcement of a text does not count as speech: the bot repeats announcements of interrupted text."""
        repeated = self.output("Once upon a time.", 1, **announced)
        with pytest.raises(ExpectationError, match="but it said 'I stop'") as raised:
            self.said(repeated, *says_aloud("I stop"), contains="time", within=0.0)
        assert raised.value.kind == "text_mismatch"

    def test_as_far_as_it_was_said(self) -> None:
        """A text counts as far as it was spoken."""
        text = "Once upon a time."
        assert self.said(self.progress(text, "Once upon", 1), contains="upon") == "Once upon"
        with pytest.raises(ExpectationError, match="it said 'Once upon'"):
            self.said(self.progress(text, "Once", 1), self.progress(text, "Once upon", 1), contains="time", within=0.0)

    def test_segments(self) -> None:
        """Each counts once, also of a bot that gives it another id in each message; the same may be said again."""
        completed = self.output("Hi you.", 3, spoken_status="completed")
        segment = [self.progress("Hi you.", "Hi", 1), self.progress("Hi you.", "Hi you.", 2), completed]
        assert self.said(*segment, self.progress("Bye.", "Bye.", 4), contains="Bye") == "Hi you. Bye."
        assert self.said(*segment, self.progress("Hi you.", "Hi you.", 4), contains="you. Hi you.") == "Hi you. Hi you."

    def test_words(self) -> None:
        """Words of bots of 1.x and 0.3 are joined in order."""
        assert self.said(*[self.output("no", spoken=True)] * 2, contains="no no") == "no no"
        assert self.said(*[RTVIMessage("bot-tts-text", {"text": "no"})] * 2, contains="no no") == "no no"

    def test_words_after_an_interruption(self) -> None:
        """Words after an interruption belong to the interrupted speech, until the bot goes on."""
        stale, interrupted = self.progress("Once upon a time.", "Once upon", 1), RTVIMessage("bot-interrupted", None)
        with TalkingBot(lambda text: None).client() as client, client.expect(GUARD) as expect:
            says(client, [interrupted, stale, RTVIMessage("bot-tts-text", {"text": "upon"})])
            settle(client)
            expect.event("bot-interrupted")
            with pytest.raises(ExpectationError, match="it said ''"):
                expect.text("upon", within=0.0)
            says(client, says_aloud("I stop"))
            assert expect.text("stop") == "I stop"

    @pytest.mark.parametrize("sign", ["bot-llm-started", "bot-started-speaking"])
    def test_words_after_the_bot_has_gone_on(self, sign: str) -> None:
        """Words behind a sign of a later answer are new, though they follow an interruption, and no text tells them."""
        signs = [RTVIMessage("bot-interrupted", None), RTVIMessage("bot-tts-text", {"text": "upon"})]
        signs += [RTVIMessage(sign, None), RTVIMessage("bot-tts-text", {"text": "I stop"})]
        with TalkingBot(lambda text: None).client() as client, client.expect(GUARD) as expect:
            says(client, signs)
            settle(client)
            assert expect.text("stop") == "I stop"


def test_outside_of_its_block(client: RTVIClient) -> None:
    """expect() outside of a with statement is refused, and a block leaves no stream open."""
    with pytest.raises(RTVIError, match="with statement"):
        client.expect().event("metrics")
    with client.expect():
        pass
    assert waiting_calls(client) == 0


def test_after_the_block() -> None:
    """After the block the session goes on, and the error says that the block has ended."""
    with TalkingBot().client() as client:
        with client.expect(GUARD) as expect:
            pass
        with pytest.raises(RTVIError, match="with statement"):
            expect.event("metrics")


def test_a_turn_before_the_block_is_not_shown() -> None:
    """An error shows no turn from before the block, but shows the turn in progress."""
    bot = TalkingBot(lambda text: None if text == "open" else "Yes.")
    with bot.client() as client:
        client.ask("before", GUARD)
        with client.expect(0.0) as expect:
            with pytest.raises(ExpectationError) as caught:
                expect.call("set_timer")
            assert (caught.value.turn, caught.value.timeline) == (None, "")
            client.send_text("open")
            until(lambda: client.turns()[-1].is_open)
            with pytest.raises(ExpectationError, match="turn 2, RTVI"):
                expect.call("set_timer")


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda e: e.text(), "contains= or matches="),
        (lambda e: e.text(""), "contains"),
        (lambda e: e.text(matches=re.compile(b"x")), "matches"),
        (lambda e: e.call("x", y={("a", 1): 1}), "arguments"),
        (lambda e: e.turn(calls={"x": {("a", 1): 1}}), "calls"),
        (lambda e: e.turn(excludes=""), "excludes"),
        (lambda e: e.turn(contain="x"), r"turn\(\) has no contain; did you mean contains"),
    ],
)
def test_arguments_that_cannot_be_met(call: Callable[[Expect], object], named: str) -> None:
    """An argument that no bot could meet is an error that names it."""
    with TalkingBot().client() as client, client.expect(GUARD) as expect:
        client.send_text("Hello")
        with pytest.raises((TypeError, ValueError), match=named):
            call(expect)


def test_a_compiled_pattern_is_shown_as_it_was_written() -> None:
    """The error shows a compiled pattern as it was written."""
    with (
        TalkingBot().client() as client,
        client.expect(0.0) as expect,
        pytest.raises(ExpectationError, match="to say /zz/"),
    ):
        expect.text(matches=re.compile("zz"))
