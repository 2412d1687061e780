"""`ask()` and its kin with real bots: each question gets its own answer, whole."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from rtvi_sync import RequestTimeoutError, RTVIClient, Turn, connect
from rtvi_sync.media import ToneSource
from tests.captures.expected import EXPECTED
from tests.captures.scenarios import SCENARIOS
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone, write_wav

from .clients import TransportName
from .conftest import BotServer, Shared

WORD_SECONDS = 0.2


@attrs.frozen
class Way:
    """A bot, how it speaks, and how it is reached.

    Attributes:
        pipecat: its version.
        kind: of conftest.py.
        voice: how it reports its spoken words: by "word" or "sentence"; "mute": it has no voice; "text": it has one,
            but is asked for text.
        transport: to it.
    """

    pipecat: str
    kind: str
    voice: str
    transport: TransportName = "websocket"

    @property
    def is_aloud(self) -> bool:
        """Whether it speaks."""
        return self.voice in ("word", "sentence")

    def __str__(self) -> str:
        return "-".join((self.pipecat, self.voice, self.transport))


SCRIPTED = {"1.14.0": "scripted-2.2", "1.5.0": "scripted-2.0", "0.0.108": "scripted-1.2", "0.0.73": "scripted-0.3"}
EVAL = Way("1.14.0", "stock", "word", "eval")
WAYS = [
    *(
        Way(pipecat, kind, voice)
        for pipecat, kind in SCRIPTED.items()
        for voice in ("word", "sentence", "mute", "text")
        if (pipecat, voice) != ("0.0.73", "text")  # it cannot be asked for text
    ),
    EVAL,
]
# One of each version. The bots of Pipecat 1.5.0, and all other ways, are left to the long runs.
VERSIONS = [Way(pipecat, kind, "word" if pipecat >= "1" else "sentence") for pipecat, kind in SCRIPTED.items()]
SHORT = [EVAL, *(way for way in VERSIONS if way.pipecat != "1.5.0")]
# A bot of today and one of the oldest generation, where each question takes a second or more.
SLOW = [EVAL, *(way for way in VERSIONS if way.pipecat == "0.0.73")]
# Those that report each word.
WORDS = [Way(pipecat, kind, "word") for pipecat, kind in SCRIPTED.items()]


def each(ways: list[Way], short: Sequence[Way] = SHORT) -> list[Any]:
    """Return ways as parameters of a test, of which only some are tried in each run."""
    return [pytest.param(way, id=str(way), marks=[] if way in short else pytest.mark.matrix) for way in ways]


@pytest.fixture
def talk(shared_bots: Shared) -> Callable[..., AbstractContextManager[RTVIClient]]:
    """Return a function that connects to the bot of a way, for which a script may have more."""

    @contextmanager
    def talk(way: Way, **script: Any) -> Iterator[RTVIClient]:
        bot: BotServer = shared_bots.server(way.kind)
        if way.transport == "eval":
            url = bot.base_url
        else:
            bot.follow({"voice": {"mute": None, "text": "word"}.get(way.voice, way.voice), **script})
            url = bot.ws_url
        with connect(url, transport=way.transport, mic=False, speaker=False, connect_timeout=GUARD) as client:
            yield client

    return talk


Talk = Callable[..., AbstractContextManager[RTVIClient]]


@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("way", each(WAYS, SLOW))
def test_one_after_the_other(talk: Talk, way: Way, count: int) -> None:
    """Every answer is that to its question, complete without a wait, with all of its audio."""
    with talk(way) as client:
        if way.voice == "mute":
            assert client.ask("Do you speak?", GUARD).assumed  # once, and then it is known
        for number in range(count):
            turn = client.ask(f"number {number}", GUARD, audio_response=way.voice != "text")
            assert turn.bot_text == f"You said: number {number}."
            assert (turn.status, turn.assumed, turn.spoken_text) == ("complete", None, turn.bot_text)
            assert turn.audio.seconds == pytest.approx(4 * WORD_SECONDS if way.is_aloud else 0)


def test_a_model_that_decides_whether_the_user_has_finished(talk: Talk, tmp_path: Path) -> None:
    """The answer is that to the question, also if the model has found once that the user has not finished."""
    question = write_wav(tmp_path / "question.wav", [tone(0.6)])
    pausing = write_wav(tmp_path / "pausing.wav", [tone(0.6), silence(0.9), tone(0.6)])
    with talk(VERSIONS[0], decides=True, hears=["hello bot", "I want...", "a coffee", "hm..."]) as client:
        for asked, told, answer in (
            (question, "hello bot", "You said: hello bot."),
            (pausing, "I want... a coffee", "You said: a coffee."),
            (question, "hm...", "You said: Go on."),
            ("number 1", "number 1", "You said: number 1."),
        ):
            turn = client.ask(asked, GUARD)
            assert (turn.user_text, turn.bot_text) == (told, answer)
            assert (turn.status, turn.assumed, turn.spoken_text) == ("complete", None, answer)
        assert [turn.initiator for turn in client.turns()] == ["user"] * 4


def test_a_bot_that_mutes_the_user(talk: Talk, tmp_path: Path) -> None:
    """A question during the bot's greeting is answered after it, and interrupts nothing."""
    question = write_wav(tmp_path / "question.wav", [tone(0.6)])
    greeting = "Welcome to the shop."
    for asked, told in ((question, "hello bot"), ("number 1", "number 1")):
        with talk(VERSIONS[0], mutes="first", greets=[["speak", greeting]]) as client:
            turn = client.ask(asked, GUARD)
            assert (turn.user_text, turn.bot_text, turn.status) == (told, f"You said: {told}.", "complete")
            greeted = client.listen(GUARD)
            assert (greeted.bot_text, greeted.status) == (greeting, "complete")


def test_a_bot_that_tells_no_user_input(talk: Talk, tmp_path: Path) -> None:
    """A bot that reports no user input acknowledges by `user-llm-text` alone, as bots before RTVI 2.2."""
    question = write_wav(tmp_path / "question.wav", [tone(0.6)])
    with talk(VERSIONS[0], hears=["hello bot"], observed={"user_input_enabled": False}) as client:
        for asked, told in (("number 1", "number 1"), (question, "hello bot"), ("number 2", "number 2")):
            turn = client.ask(asked, GUARD)
            assert (turn.user_text, turn.bot_text) == (told, f"You said: {told}.")
            assert (turn.status, turn.assumed) == ("complete", None)


def looking_up(count: int) -> dict[str, Any]:
    """Return the script of a bot that calls a function for every other number."""
    numbers = range(0, count, 2)
    return {
        "functions": {f"look_up_{number}": {"seconds": 0.05, "result": {"found": number}} for number in numbers},
        "replies": {
            **{f"number {number}": [["call", [[f"look_up_{number}", {}]]]] for number in numbers},
            **{f"after look_up_{number}": [["write", f"You said: number {number}."]] for number in numbers},
        },
    }


@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.matrix)])
@pytest.mark.parametrize("way", each([way for way in WAYS if way.is_aloud], SLOW))
def test_questions_that_are_given_up(talk: Talk, way: Way, count: int) -> None:
    """If a question is given up, the next one, asked at once, gets its own answer, and no turn has another one's.

    From 1.0 on every other answer needs a function, so two runs of the model; Pipecat 0.0.108 mixes these up itself.
    """
    patience = random.Random(count)
    answered = 0
    over: list[Turn] = []
    with talk(way, **looking_up(count) if way.pipecat >= "1" else {}) as client:
        client.on("turn_ended", over.append)
        for number in range(count):
            try:
                turn = client.ask(f"number {number}", patience.choice([0.001, 0.02, 0.3, 1.0, GUARD]))
            except RequestTimeoutError:
                continue
            answered += 1
            assert turn.user_text == f"number {number}"
            # Pipecat before 1.0 joins two quick questions, and answers the last words.
            assert turn.interrupted or (turn.bot_text or "").endswith(f"number {number}.")
        assert (client.ask("number 9999", GUARD).bot_text or "").endswith("9999.")
    assert answered
    for turn in over:  # the text may be cut, and 0.0.108 answers the last of several quick questions for each of them
        own = f"You said: {turn.user_text}. " * count
        assert turn.initiator == "bot" or own.startswith(turn.bot_text or "")


@pytest.fixture
def spoken(tmp_path: Path) -> Path:
    """Return a WAV file that bots take as speech."""
    return write_wav(tmp_path / "spoken.wav", [tone(0.8), silence(0.1)])


@pytest.mark.parametrize("way", each([*VERSIONS, EVAL]))
def test_a_spoken_question(talk: Talk, way: Way, spoken: Path) -> None:
    """The turn has the heard question, its answer, and the time in which the user heard nothing."""
    with talk(way) as client:
        turn = client.ask(spoken, GUARD)
    assert turn.user_text == "hello bot"
    assert turn.bot_text == "You said: hello bot."
    assert turn.audio.seconds == pytest.approx(4 * WORD_SECONDS)
    assert turn.user_audio.seconds > 0.5
    assert turn.voice_to_voice is not None
    assert turn.voice_to_voice > 0


@pytest.mark.parametrize("way", each([*VERSIONS, EVAL]))
def test_a_spoken_question_after_one_that_was_given_up(talk: Talk, way: Way, spoken: Path) -> None:
    """The bot has heard the end of the first one, so each has a turn of its own."""
    with talk(way) as client:
        with pytest.raises(RequestTimeoutError):
            client.ask(ToneSource(440, 20.0), 1.0)
        turn = client.ask(spoken, GUARD)
        before = client.turns()[-2]
    assert (turn.user_text, turn.bot_text) == ("hello bot", "You said: hello bot.")
    assert before.modality == "audio"
    assert 0.5 < turn.user_audio.seconds < 1.0


@pytest.mark.matrix
@pytest.mark.parametrize("way", each([way for way in VERSIONS if way.pipecat in ("1.14.0", "0.0.73")]))
def test_the_sample_rate_of_a_question_is_no_matter(talk: Talk, way: Way, tmp_path: Path) -> None:
    """The bot needs the same time whatever the rate, also after a number of questions."""
    waited: dict[int, list[float]] = {}
    for rate in (8000, 16_000, 22_050, 48_000):
        question = write_wav(tmp_path / f"{rate}.wav", [tone(1.0, rate), silence(0.1, rate)], rate)
        with talk(way) as client:
            turns = [client.ask(question, GUARD) for _ in range(5)]
        assert [turn.bot_text for turn in turns] == ["You said: hello bot."] * 5
        waited[rate] = [turn.voice_to_voice or 0 for turn in turns]
    usual = [statistics.median(seconds) for seconds in waited.values()]
    assert max(usual) <= 1.25 * min(usual), waited


@pytest.mark.parametrize("by", ["text", "voice"])
@pytest.mark.parametrize("way", each([*WORDS, EVAL], WORDS[:1]))
def test_an_interruption(talk: Talk, way: Way, by: str, spoken: Path) -> None:
    """The first answer is cut, and its spoken part is its start; the second is whole."""
    with talk(way) as client:
        second = client.barge_in("Stop" if by == "text" else spoken, delay=0.5)
        first = client.ask(f"a {'very ' * 20}long question", GUARD)
        answer = second.result(GUARD)
    assert first.interrupted
    assert first.spoken_exact == "word"
    assert first.spoken_text
    assert "".join((first.bot_text or "").split()).startswith("".join((first.spoken_text or "").split()))
    assert first.spoken_text != first.bot_text
    assert answer.bot_text == ("You said: Stop." if by == "text" else "You said: hello bot.")


RARE = ["filler-and-slow-function", "chain", "client-function", "text-only-function", "function-unreported"]


@pytest.mark.parametrize("way", each([way for way in VERSIONS if way.pipecat != "0.0.73"]))  # which reports none
@pytest.mark.parametrize("scenario", ["parallel", *(pytest.param(name, marks=pytest.mark.matrix) for name in RARE)])
def test_functions(talk: Talk, way: Way, scenario: str) -> None:
    """An answer is one turn, whatever functions the bot calls for it, with each call and its result."""
    (expected,) = EXPECTED[scenario]
    with talk(way, **SCENARIOS[scenario].bot) as client:
        if scenario == "client-function":
            client.register_function_call_handler("get_weather", lambda _: {"temperature": 12})
        turn = client.ask("Weather?", GUARD, audio_response=not scenario.startswith("text-only"))
        hello = client.ask("Hello", GUARD)
        turns = client.turns()
    assert turn.bot_text == expected.bot
    assert (turn.status, turn.assumed) == ("complete", None)
    calls = [(call.function_name, call.arguments, call.result) for call in turn.function_calls]
    assert calls == [*expected.calls]
    assert (hello.bot_text, len(turns)) == ("You said: Hello.", 2)


@pytest.mark.parametrize("way", each([way for way in VERSIONS if way.pipecat == "1.14.0"]))  # 1.5 tells no model of it
def test_a_function_that_takes_too_long(talk: Talk, way: Way) -> None:
    """A function that takes too long is reported as cancelled, and the answer is the model's text after that."""
    script = {
        "functions": {"get_weather": {"seconds": GUARD, "timeout": 0.3}},
        "replies": {
            "Weather?": [["call", [["get_weather", {}]]]],
            "after get_weather": [["write", "Nobody answers there."]],
        },
    }
    with talk(way, **script) as client:
        turn = client.ask("Weather?", GUARD)
        hello = client.ask("Hello", GUARD)
        turns = client.turns()
    assert (turn.status, turn.assumed, turn.bot_text) == ("complete", None, "Nobody answers there.")
    assert [call.cancelled for call in turn.function_calls] == [True]
    assert (hello.bot_text, len(turns)) == ("You said: Hello.", 2)
