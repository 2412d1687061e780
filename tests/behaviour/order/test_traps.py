"""Misleading messages of real bots: `ask()` is right where the obvious rules fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pytest

from rtvi_sync import BotError, DisconnectedError, FunctionCall, RequestTimeoutError, RTVIClient, RTVIEvent
from rtvi_sync.messages import BotOutputData
from rtvi_sync.testing import EmbeddedBot, Fault, Reply
from tests.support.slowness import GUARD

Told: TypeAlias = list[tuple[str, str]]

STORY = "There was a king who had three sons. The first was tall. The second was small. The third knew songs."
FUNCTION: dict[str, Any] = {"call": ("get_weather", {"city": "Oslo"}), "result": {"temperature": 12}, "seconds": 0.1}
TWELVE = Reply("It is twelve degrees.", **FUNCTION)
WITH_FILLER = Reply("It is twelve degrees.", **FUNCTION, filler="One moment.")
REPLIES = {"story": STORY, "filler": WITH_FILLER, "weather": TWELVE}
EVENTS = (
    *("user_llm_text", "bot_llm_started", "bot_llm_text", "bot_llm_stopped", "bot_tts_text", "bot_output"),
    *("bot_stopped_speaking", "bot_interrupted"),
)


@contextmanager
def talk(**options: Any) -> Iterator[tuple[RTVIClient, Told, EmbeddedBot]]:
    """Yield a client of a bot, and the bot's events."""
    told: Told = []

    def note(name: str) -> Callable[..., None]:
        return lambda *data: told.append((name, str(getattr(data[0], "text", "")) if data else ""))

    with EmbeddedBot(**{"replies": REPLIES, **options}) as bot:
        client = RTVIClient.for_url(bot.base_url, mic=False, speaker=False, connect_timeout=GUARD)
        for name in EVENTS:
            client.on(RTVIEvent(name), note(name))
        with client:
            yield client, told, bot


def after(told: Told, name: str, count: int = 1) -> Told:
    """Return the events after the nth event of a name."""
    places = [place for place, (each, _) in enumerate(told) if each == name]
    return told[places[count - 1] + 1 :]


def until(told: Told, name: str, text: str = "bot_llm_text") -> str:
    """Return the texts of one kind of event before the first of another."""
    names = [each for each, _ in told]
    found = [words for each, words in told[: names.index(name)] if each == text]
    return "".join(found) if text == "bot_llm_text" else " ".join(found)


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0", "2.2.0"])
def test_a_filler_is_not_the_answer(version: str) -> None:
    """A turn with a filler does not end with the model's first run or first speech."""
    with talk(version=version) as (client, told, _):
        turn = client.ask("With a filler", GUARD)
        turn.expect(calls={"get_weather": {"city": "Oslo"}})
        question = after(told, "user_llm_text")

        assert turn.bot_text == "One moment. It is twelve degrees."
        assert turn.assumed is None
        assert until(question, "bot_llm_stopped") == ""
        assert until(question, "bot_stopped_speaking") == ""


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0", "2.2.0"])
def test_the_run_after_a_function_is_spoken(version: str) -> None:
    """An answer in text is complete when it has been spoken, if a function was called."""
    with talk(version=version) as (client, told, _):
        turn = client.ask("Weather?", GUARD, audio_response=False)

        assert (turn.bot_text, turn.spoken_text) == ("It is twelve degrees.", "It is twelve degrees.")
        assert turn.audio.seconds > 1
        assert until(after(told, "user_llm_text"), "bot_llm_stopped") == ""


def test_the_model_that_stops_twice() -> None:
    """With RTVI 1.2 the nth end of a run does not belong to the nth answer."""
    with talk(version="1.2.0") as (client, told, _):
        texts = [client.ask(text, GUARD).bot_text for text in ("One", "Two", "Three")]

        assert texts == ["You said: One", "You said: Two", "You said: Three"]
        assert until(after(told, "bot_llm_stopped", 1), "bot_llm_stopped") == ""
        assert [name for name, _ in told].count("bot_llm_stopped") == 6


@pytest.mark.parametrize("version", ["1.2.0", "2.0.0", "2.2.0"])
def test_a_word_of_the_answer_that_was_interrupted(version: str) -> None:
    """A late word of the answer that was interrupted belongs to neither turn."""
    with talk(version=version) as (client, told, _):
        pending = client.barge_in("Stop", after="bot-tts-text", delay=0.3)
        story = client.ask("A story", GUARD)
        stop = pending.result(GUARD)

        assert (story.status, story.user_text) == ("interrupted", "A story")
        assert STORY.startswith(story.spoken_text or "")
        assert (stop.bot_text, stop.spoken_text, stop.status) == ("You said: Stop", "You said: Stop", "complete")
        mark = ("bot_llm_started", 2) if version == "1.2.0" else ("bot_interrupted", 2)
        words = until([*after(told, *mark), ("end", "")], "end", "bot_tts_text")
        assert words.endswith("You said: Stop")
        assert words != "You said: Stop"


def test_the_end_of_the_speech_that_was_interrupted() -> None:
    """With RTVI 1.2 the end arrives when the next answer has started, and does not end that answer."""
    with talk(version="1.2.0") as (client, told, _):
        pending = client.barge_in("Stop", after="bot-tts-text", delay=0.3)
        client.ask("A story", GUARD)

        assert pending.result(GUARD).bot_text == "You said: Stop"
        assert until(after(told, "user_llm_text", 2), "bot_stopped_speaking") == ""


@pytest.mark.parametrize("version", ["2.0.0", "2.2.0"])
def test_a_sentence_that_reappears(version: str) -> None:
    """The next sentence of an answer that was interrupted is announced with the next speech."""
    with talk(version=version) as (client, told, _):
        pending = client.barge_in("Stop", after="bot-tts-text", delay=0.3)
        client.ask("A story", GUARD)

        assert pending.result(GUARD).bot_text == "You said: Stop"
        assert ("bot_output", "The first was tall.") in after(told, "bot_llm_started", 2)


def test_a_greeting() -> None:
    """A greeting is a turn of the bot, and not the answer to the first question."""
    with talk(greeting=Reply(filler="Welcome.")) as (client, _, _):
        greeting = client.listen(GUARD)
        answer = client.ask("Hello", GUARD)

    assert (greeting.initiator, greeting.bot_text, greeting.user_text) == ("bot", "Welcome.", "")
    assert (answer.initiator, answer.bot_text) == ("user", "You said: Hello")


@pytest.mark.parametrize("version", ["0.3.0", "1.2.0", "2.2.0"])
def test_what_is_spoken_is_not_what_is_written(version: str) -> None:
    """Marks are not spoken; the answer still counts as complete."""
    with talk(version=version, replies=Reply("**Two** things: `this`.", say="Two things: this.")) as (client, _, _):
        turn = client.ask("Hello", GUARD)

    assert (turn.bot_text, turn.status, turn.assumed) == ("**Two** things: `this`.", "complete", None)


@pytest.mark.parametrize("version", ["0.3.0", "1.2.0", "2.2.0"])
def test_a_function_of_the_client_is_called_once(version: str) -> None:
    """A function of the client is called and reported once, though bots from 1.2 on announce it twice."""
    calls: list[Any] = []
    with talk(version=version, replies=Reply("Rain.", call=("look", {"at": "sky"}))) as (client, _, _):

        def look(params: Any) -> str:
            calls.append(params.arguments)
            return "grey"

        client.register_function_call_handler("look", look)
        turn = client.ask("And?", GUARD)

    assert calls == [{"at": "sky"}]
    assert turn.bot_text == "Rain."
    assert [(call.function_name, call.result) for call in turn.function_calls] == [("look", "grey")]


@pytest.mark.parametrize("code", [1001, 1011, 1012])
def test_a_server_that_fails_in_the_last_word(code: int) -> None:
    """A word is reported as its speech starts, so a short answer is reported completely; the user has not heard it."""
    with talk(replies="Noon.") as (client, _, bot):
        session = bot.wait_for_session()

        def leave(output: BotOutputData) -> None:
            if output.spoken_progress is not None:
                threading.Thread(target=session.close, args=(code,)).start()

        client.on("bot_output", leave)
        with pytest.raises(DisconnectedError, match=f"before the bot had answered .code {code}.") as caught:
            client.ask("When?", GUARD)
        assert caught.value.turn is not None
        assert (caught.value.turn.status, caught.value.turn.bot_text) == ("failed", "Noon.")


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0", "2.2.0"])
@pytest.mark.parametrize("level", ["disabled", "none", "name", "arguments", "full"])
def test_a_function_of_the_client_needs_its_report(version: str, level: Any) -> None:
    """From RTVI 1.2 on the client knows of a call only from its report: without a name it calls nothing, without
    arguments it passes none. Earlier bots ask the client, with or without a report.
    """
    calls: list[Any] = []
    reply = Reply("Rain.", call=("look", {"at": "sky"}), report_level=level)

    def look(call: FunctionCall) -> str:
        calls.append(call.arguments)
        return "grey"

    with talk(version=version, replies=reply) as (client, _, _):
        client.register_function_call_handler("look", look)
        is_asked = version == "1.1.0"
        if is_asked or level not in ("disabled", "none"):
            assert client.ask("And?", GUARD).bot_text == "Rain."
        else:
            with client.events("bot_llm_stopped", timeout=GUARD) as stopped:
                client.send_text("And?")
                next(stopped)
            client.send_client_request("answered after what the bot tells of the call", timeout=GUARD)

    named = [{}] if level == "name" else [{"at": "sky"}] if level in ("arguments", "full") else []
    assert calls == ([{"at": "sky"}] if is_asked else named)


@pytest.mark.parametrize("version", ["0.3.0", "1.2.0", "2.2.0"])
def test_bots_that_fail(version: str) -> None:
    """An error in place of an answer, a reply that stalls, and a bot that leaves each raise a distinct error, with the
    turn.
    """
    faults = [Fault("error", "error"), Fault("stall", "stall"), Fault("close", "close")]
    with talk(version=version, faults=faults) as (client, _, bot):
        with pytest.raises(BotError, match="The model failed"):
            client.ask("An error", GUARD)
        with pytest.raises(RequestTimeoutError) as timeout:
            client.ask("A stall", 1.0)
        assert client.ask("Still there", GUARD).bot_text == "You said: Still there"
        with pytest.raises(DisconnectedError) as end:
            client.ask("Now. Close it.", GUARD)

        assert bot.heard == ["An error", "A stall", "Still there", "Now. Close it."]
    assert timeout.value.turn is not None
    assert (end.value.code, end.value.initiator) == (1000, "server")
