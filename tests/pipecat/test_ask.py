"""`ask()` and its kin with real bots: each question gets its own answer, whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtvi_sync import RequestTimeoutError, RTVIClient, connect
from tests.support.slowness import GUARD

from .conftest import BotServer
from .test_eval import SPEECH

# Fixture of a bot that repeats what it reads, and the transport to it. A word of its voice takes 0.2 s.
BOTS = [
    ("pipecat_runner", "websocket"),
    ("pipecat_stock", "eval"),
    ("pipecat_configured_1_2", "websocket"),
    ("pipecat_configured_0_3", "websocket"),
]


@pytest.fixture(params=BOTS, ids=[f"{name.removeprefix('pipecat_')}-{transport}" for name, transport in BOTS])
def client(request: pytest.FixtureRequest) -> Iterator[RTVIClient]:
    """Return a client of one of the bots."""
    name, transport = request.param
    bot: BotServer = request.getfixturevalue(name)
    url = bot.base_url if transport == "eval" else bot.ws_url
    with connect(url, transport=transport, mic=False, speaker=False, connect_timeout=GUARD) as client:
        yield client


def check(client: RTVIClient, number: int) -> None:
    turn = client.ask(f"question number {number}", GUARD)
    assert turn.bot_text == f"You said: question number {number}."
    assert (turn.status, turn.assumed, turn.spoken_text) == ("complete", None, turn.bot_text)
    assert turn.audio.seconds == pytest.approx(1.0)


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.matrix)])
def test_one_after_the_other(client: RTVIClient, count: int) -> None:
    """Every answer is that to its question, complete without a wait, with all of its audio."""
    for number in range(count):
        check(client, number)


@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.matrix)])
def test_questions_that_are_given_up(client: RTVIClient, count: int) -> None:
    """Whoever gives a question up, and asks the next at once, gets the answer to that."""
    patience = random.Random(count)
    answered = 0
    for number in range(count):
        try:
            turn = client.ask(f"question number {number}", patience.choice([0.05, 0.3, 1.0, GUARD]))
        except RequestTimeoutError:
            continue
        answered += 1
        assert turn.user_text == f"question number {number}"
        # Pipecat before 1.0 joins two quick questions, and answers the last words.
        assert turn.interrupted or turn.bot_text.endswith(f"question number {number}.")
    assert client.ask("question number 9999", GUARD).bot_text.endswith("9999.")
    assert answered


def test_a_spoken_question(client: RTVIClient) -> None:
    """What was heard, the answer to it, and how long the user heard nothing."""
    turn = client.ask(Path(SPEECH), GUARD)
    assert turn.user_text == "hello bot"
    assert turn.bot_text == "You said: hello bot."
    assert turn.audio.seconds == pytest.approx(0.8)
    assert turn.user_audio.seconds > 0.5
    assert turn.voice_to_voice is not None
    assert turn.voice_to_voice > 0


def test_an_interruption(client: RTVIClient) -> None:
    """The first answer is cut, and what was spoken of it is its beginning; the second is whole."""
    second = client.barge_in("Stop", delay=0.3)
    first = client.ask("a " + "very " * 20 + "long question", GUARD)
    answer = second.result(GUARD)
    assert first.interrupted
    assert "".join(first.bot_text.split()).startswith("".join(first.spoken_text.split()))
    assert first.spoken_text != first.bot_text
    assert answer.bot_text == "You said: Stop."
