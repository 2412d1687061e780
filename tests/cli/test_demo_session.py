"""The user of the demo: listens first, hears the bot out, notices the end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import DisconnectedError, RequestTimeoutError, RTVIClient, WebSocketTransport
from rtvi_sync.cli import bot_activity as activity
from rtvi_sync.cli.demo_session import Conversation, Ear
from rtvi_sync.cli.scripted_speech import Mouth, load_speech
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD, takes
from tests.support.wavs import quiet, tone


class Lines:
    """A screen that keeps what it is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.partials: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def partial(self, text: str) -> None:
        self.partials.append(text)

    def table(self, title: str, headers: Any, rows: Any) -> None:
        raise AssertionError("a conversation shows no table")

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        """The lines without their times."""
        return [line.split(" s  ", 1)[1] for line in self.lines]


@contextlib.contextmanager
def talking_to(bot: EmbeddedBot) -> Iterator[tuple[Conversation, Lines, RTVIClient]]:
    """A conversation in a session that has just begun."""
    mouth, ear, lines = Mouth(16_000), Ear(), Lines()
    client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=mouth, speaker=ear, connect_timeout=GUARD)
    talk = Conversation(client, mouth, ear, lines)
    with client:
        yield talk, lines, client


@contextlib.contextmanager
def at_work(bot: EmbeddedBot, work: Callable[[BotSession], None]) -> Iterator[None]:
    """Runs `work` beside the test, once a client is ready."""

    def run() -> None:
        session = bot.wait_for_session(GUARD)
        session.wait_for_message("client-ready", GUARD)
        work(session)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(GUARD)
    assert not thread.is_alive()


def say(session: BotSession, type_: str, data: Any = None) -> None:
    """Has the bot send a message."""
    session.send({"label": "rtvi-ai", "type": type_, **({} if data is None else {"data": data})})


def test_each_part_is_said_after_the_answer_to_the_one_before(two_words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two utterances, two answers, in turn."""
    monkeypatch.setattr(activity, "_SETTLED", 0.2)
    speech = load_speech(two_words)
    with EmbeddedBot(transcripts=speech.words, hangover=0.2) as bot, talking_to(bot) as (talk, lines, _):
        talk.hold(speech, greeting=0, timeout=GUARD)
    assert lines.texts == [
        "[you say part 1 of 2, 0.5 s]",
        "you  First word.",
        "bot  You said: First word.",
        "[you say part 2 of 2, 0.4 s]",
        "you  Second word.",
        "bot  You said: Second word.",
    ]
    assert lines.partials[0] == "you  First"
    assert talk.answers == 2
    assert len(talk.said) == len(talk.finals) == 2


def test_a_bot_that_greets_is_heard_out_first(one_word: Path) -> None:
    """Nothing is said before the greeting is over, and has been for a moment."""
    over: list[float] = []

    def greet(session: BotSession) -> None:
        say(session, "bot-started-speaking")
        say(session, "bot-transcription", {"text": "Welcome!"})
        over.append(time.monotonic())
        say(session, "bot-stopped-speaking")

    speech = load_speech(one_word)
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, greet), talking_to(bot) as (talk, lines, _):
        talk.hold(speech, greeting=2 * GUARD, timeout=GUARD)  # not by the end of the time for a greeting
    assert talk.said[0] - over[0] > 0.7
    assert lines.texts[1:3] == ["bot  Welcome!", "[you say part 1 of 1, 0.5 s]"]
    assert talk.answers == 1


def test_a_bot_that_says_no_word_is_heard_by_its_sound(one_word: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transcripts and speaking events the sound alone is an answer, and its silence the end of it."""
    monkeypatch.setattr(activity, "_QUIET", 0.2)
    speech = load_speech(one_word)
    with EmbeddedBot() as bot, _sound_only(), talking_to(bot) as (talk, lines, _):
        talk.hold(speech, greeting=0, timeout=GUARD)
    assert talk.answers == 1
    assert lines.texts == ["[you say part 1 of 1, 0.5 s]"]


@contextlib.contextmanager
def _sound_only() -> Iterator[None]:
    """Bots send nothing but bot-ready and audio."""
    original = BotSession.send

    def send(session: BotSession, message: Any) -> None:
        if message["type"] == "bot-ready":
            original(session, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BotSession, "send", send)
        yield


def test_a_bot_that_never_answers_is_not_waited_for_forever(one_word: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next thing is said when patience is over."""
    monkeypatch.setattr(activity, "PATIENCE", 0.3)
    with EmbeddedBot(speech_threshold=30_000.0) as bot, talking_to(bot) as (talk, _, _):
        talk.hold(load_speech(one_word), greeting=0, timeout=GUARD)
    assert talk.answers == 0


def test_a_bot_that_never_tells_that_it_stopped_is_not_waited_for_forever(
    one_word: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is believed more than a bot that says it is speaking."""
    monkeypatch.setattr(activity, "PATIENCE", 0.3)
    with (
        EmbeddedBot(speech_threshold=30_000.0) as bot,
        at_work(bot, lambda session: say(session, "bot-started-speaking")),
        talking_to(bot) as (talk, _, _),
    ):
        talk.hold(load_speech(one_word), greeting=5, timeout=GUARD)
    assert (len(talk.said), talk.answers) == (1, 0)


def test_the_time_limit_breaks_off(one_word: Path) -> None:
    """A bot that goes on and on cannot hold the user up."""
    endless = " ".join(["word"] * 1000)
    with (
        EmbeddedBot(replies=endless, echo=False) as bot,
        talking_to(bot) as (talk, _, _),
        takes(2.5, at_least=1.4),
        pytest.raises(RequestTimeoutError, match="--timeout"),
    ):
        talk.hold(load_speech(one_word), greeting=0, timeout=1.5)


def test_a_session_that_ends_early_says_how(two_words: Path) -> None:
    """Code, reason and who ended it are in the error, and what the bot reported before is shown."""

    def leave(session: BotSession) -> None:
        say(session, "error", {"error": "no credit left", "fatal": False})
        session.close(1008, "out of money")

    with (
        EmbeddedBot() as bot,
        at_work(bot, leave),
        talking_to(bot) as (talk, lines, _),
        pytest.raises(DisconnectedError, match="by the server, code 1008, out of money") as caught,
    ):
        talk.hold(load_speech(two_words), greeting=0, timeout=GUARD)
    assert caught.value.code == 1008
    assert "the bot reports an error: no credit left" in lines.texts


def test_a_bot_that_hangs_up_after_its_last_word_is_no_failure(one_word: Path) -> None:
    """The last answer counts, though the session ends right after it."""
    speech = load_speech(one_word)

    def hang_up(session: BotSession) -> None:
        assert spoken.wait(GUARD)
        session.close()

    spoken = threading.Event()
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, hang_up), talking_to(bot) as (talk, _, client):
        client.on("bot-started-speaking", spoken.set)
        talk.hold(speech, greeting=0, timeout=GUARD)
    assert talk.answers == 1


def test_ear_knows_when_all_has_been_played() -> None:
    """Sound that comes faster than real time lasts as long as it is; silence is not heard; an interruption ends it."""
    ear = Ear()
    ear.write(quiet(1.0), 16_000)
    assert ear.activity.last_heard == ear.activity.silent_from == float("-inf")
    begin = time.monotonic()
    ear.write(tone(0.5), 16_000)
    ear.write(tone(0.5), 16_000)
    assert begin <= ear.activity.last_heard <= time.monotonic()
    # The second of silence is played first.
    assert begin + 1.9 < ear.activity.silent_from <= time.monotonic() + 2.0
    ear.drop()
    assert ear.activity.silent_from <= time.monotonic()
