"""Simulated callers, against the embedded bot: how a talk ends, its content, and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    BotNotReadyError,
    DisconnectedError,
    RequestTimeoutError,
    RTVIClient,
    TelephonyTransport,
    Turn,
    connect,
)
from rtvi_sync.media import BytesSource, NoisySource
from rtvi_sync.testing import EmbeddedBot, Fault, simulate
from tests.support.slowness import GUARD
from tests.support.waiting import until
from tests.support.wavs import silence, tone, write_wav

Caller = Callable[[tuple[Turn, ...]], Any]


def saying(*lines: Any) -> Caller:
    """Return a caller that says these lines, and then nothing more."""
    return lambda turns: [*lines, None][len(turns)]


@pytest.fixture
def bot() -> Iterator[EmbeddedBot]:
    """Run a bot that repeats texts."""
    with EmbeddedBot() as bot:
        yield bot


@pytest.fixture
def client(bot: EmbeddedBot) -> Iterator[RTVIClient]:
    """Connect a client to it."""
    with connect(bot.base_url, text_only=True) as client:
        yield client


def test_a_caller_has_nothing_more_to_say(client: RTVIClient) -> None:
    """Each line sees the turns before it, and the session continues after the last one."""
    seen: list[tuple[Turn, ...]] = []

    def caller(turns: tuple[Turn, ...]) -> str | None:
        seen.append(turns)
        return saying("Hello", "How are you?")(turns)

    talk = simulate(client, caller, timeout=GUARD)

    assert talk.ended_by == "next_line"
    assert talk.lines == [
        ("user", "Hello"),
        ("bot", "You said: Hello"),
        ("user", "How are you?"),
        ("bot", "You said: How are you?"),
    ]
    assert seen == [(), talk.turns[:1], talk.turns]
    assert client.ask("Still there?", GUARD).bot_text == "You said: Still there?"
    assert simulate(client, saying("Again"), timeout=GUARD).lines[0] == ("user", "Again")


def test_a_caller_that_never_ends(client: RTVIClient) -> None:
    """A talk has a limit of lines, beyond which the caller is not asked."""
    counts: list[int] = []

    def caller(turns: tuple[Turn, ...]) -> str:
        counts.append(len(turns))
        return f"Line {len(turns)}"

    talk = simulate(client, caller, max_turns=3, timeout=GUARD)

    assert (talk.ended_by, len(talk.turns), counts) == ("max_turns", 3, [0, 1, 2])


def test_what_is_to_be_reached(client: RTVIClient) -> None:
    """A talk ends when the bot has said the awaited words, even in its last line."""

    def is_reached(turns: tuple[Turn, ...]) -> bool:
        return "bye" in str(turns[-1].bot_text)

    for max_turns in (2, 20):
        talk = simulate(client, saying("Hello", "Good bye", "More"), max_turns, is_reached, GUARD)
        assert (talk.ended_by, len(talk.turns)) == ("until", 2)


@pytest.mark.parametrize("transport", ["websocket", "eval"])
def test_spoken_lines(tmp_path: Path, transport: Any) -> None:
    """A caller may say some lines and type others."""
    voice = tone(0.3)
    lines = (
        BytesSource(voice, 16_000),
        "typed",
        NoisySource(BytesSource(voice, 16_000), snr_db=20, loss=0.02, jitter=0.04),
        write_wav(tmp_path / "line.wav", [voice, silence(0.1)]),
    )
    with (
        EmbeddedBot(transcripts=["one", "three", "four"], replies=lambda said: f"{said}!") as bot,
        connect(bot.ws_url, transport=transport, mic=False, speaker=False) as client,
    ):
        talk = simulate(client, saying(*lines), timeout=GUARD)

    assert talk.ended_by == "next_line"
    assert [turn.modality for turn in talk.turns] == ["audio", "text", "audio", "audio"]
    assert [text for who, text in talk.lines if who == "user"] == ["one", "typed", "three", "four"]
    assert [turn.bot_text for turn in talk.turns] == ["one!", "typed!", "three!", "four!"]


def test_a_greeting_is_heard_out() -> None:
    """Unasked speech of the bot is a turn, and the caller waits for its end."""
    with (
        EmbeddedBot(greeting="Welcome to the hotel, what can I do?") as bot,
        connect(bot.base_url, mic=False, speaker=False) as client,
    ):
        until(client.turns)
        talk = simulate(client, lambda turns: None if len(turns) > 1 else "A room", timeout=GUARD)

    assert [turn.status for turn in talk.turns] == ["complete", "complete"]
    assert talk.lines == [
        ("bot", "Welcome to the hotel, what can I do?"),
        ("user", "A room"),
        ("bot", "You said: A room"),
    ]


def test_a_greeting_that_was_taken_is_no_part_of_it() -> None:
    """An application may wait for the greeting itself."""
    with EmbeddedBot(greeting="Welcome") as bot, connect(bot.base_url, text_only=True) as client:
        greeting = client.listen(GUARD)
        talk = simulate(client, lambda turns: [greeting.bot_text, None][len(turns)], timeout=GUARD)
    assert talk.lines == [("user", "Welcome"), ("bot", "You said: Welcome")]


def test_a_bot_hangs_up_during_its_answer() -> None:
    """A talk that the bot ends during its answer has the partial answer."""
    with (
        EmbeddedBot(replies={"bye": "Good bye and thank you"}, faults=[Fault("close", "bye")]) as bot,
        connect(bot.base_url, text_only=True) as client,
    ):
        talk = simulate(client, saying("Hello", "bye", "more"), timeout=GUARD)

    assert talk.ended_by == "bot"
    assert [(turn.user_text, turn.status) for turn in talk.turns] == [("Hello", "complete"), ("bye", "failed")]
    assert str(talk.turns[1].bot_text).startswith("Good")


def test_a_bot_hangs_up_when_all_is_reached() -> None:
    """The end that the test waits for counts, whether the bot has hung up by then or not."""
    with (
        EmbeddedBot(replies={"bye": "Good bye and thank you"}, faults=[Fault("close", "bye")]) as bot,
        connect(bot.base_url, text_only=True) as client,
    ):
        talk = simulate(client, saying("bye"), until=lambda turns: "Good" in str(turns[-1].bot_text), timeout=GUARD)
    assert (talk.ended_by, talk.turns[-1].status) == ("until", "failed")


def test_a_bot_hangs_up_between_two_lines(bot: EmbeddedBot, client: RTVIClient) -> None:
    """A caller that is still about to say something says nothing."""

    def caller(turns: tuple[Turn, ...]) -> str:
        if turns:
            bot.sessions[0].close()
            until(lambda: not client.connected)
        return "Hello"

    talk = simulate(client, caller, timeout=GUARD)

    assert (talk.ended_by, talk.lines) == ("bot", [("user", "Hello"), ("bot", "You said: Hello")])


def test_a_connection_that_is_lost() -> None:
    """A broken line is no bot that hangs up: the error is raised."""
    with (
        EmbeddedBot(faults=[Fault("drop", "two")]) as bot,
        connect(bot.base_url, text_only=True) as client,
        pytest.raises(DisconnectedError) as caught,
    ):
        simulate(client, saying("one", "two"), timeout=GUARD)
    assert caught.value.initiator == "network"
    assert caught.value.turn is not None
    assert caught.value.turn.user_text == "two"


def test_an_application_that_hangs_up(client: RTVIClient) -> None:
    """A client that was disconnected by the application is an error, too."""

    def caller(turns: tuple[Turn, ...]) -> str:
        client.disconnect()
        return "Hello"

    with pytest.raises(BotNotReadyError, match="This client ended the session"):
        simulate(client, caller, timeout=GUARD)


def test_an_error_of_the_caller(client: RTVIClient) -> None:
    """An exception of the function is raised, even if it looks like the end of the session, which continues."""
    for error in (ZeroDivisionError("no line"), DisconnectedError("of something else", initiator="server")):

        def caller(turns: tuple[Turn, ...], error: Exception = error) -> str:
            if turns:
                raise error
            return "Hello"

        with pytest.raises(type(error)) as caught:
            simulate(client, caller, timeout=GUARD)
        assert caught.value is error
    assert client.ask("Still there?", GUARD).bot_text == "You said: Still there?"


def test_a_bot_that_does_not_answer() -> None:
    """The time limit applies to each line."""
    with (
        EmbeddedBot(handler=lambda _, message: message["type"] == "send-text") as bot,
        connect(bot.base_url, text_only=True) as client,
        pytest.raises(RequestTimeoutError),
    ):
        simulate(client, saying("Hello"), timeout=0.1)


@pytest.mark.parametrize(("line", "error"), [("", ValueError), (5, TypeError), (["Hello"], TypeError)])
def test_what_is_no_line(client: RTVIClient, line: Any, error: type[Exception]) -> None:
    """Any other result of the function is an error that names it."""
    with pytest.raises(error, match=r"what next_line returns must be a text .* or None, not"):
        simulate(client, lambda turns: line, timeout=GUARD)


def test_a_caller_by_telephone() -> None:
    """Where no text can be sent, a line is spoken, and the bot's words are taken from its speech."""
    question = BytesSource(tone(0.4), 16_000)
    with EmbeddedBot() as bot:
        transport = TelephonyTransport("twilio", bot.ws_url, transcribe=lambda pcm, rate: f"{rate} Hz")
        with RTVIClient(transport=transport, mic=False, speaker=False) as client:
            talk = simulate(client, saying(question, NoisySource(question, snr_db=10)), timeout=GUARD)

    assert talk.ended_by == "next_line"
    assert talk.lines == [("bot", "8000 Hz")] * 2
    assert all(turn.audio for turn in talk.turns)
