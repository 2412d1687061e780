"""The demo's conversation: waits for a greeting, plays each utterance after the last answer, detects the end."""

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
from rtvi_sync.cli.demo_session import DemoSession, PlaybackMonitor
from rtvi_sync.cli.scripted_speech import UtteranceSource, load_script
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD, takes
from tests.support.wavs import quiet, tone


class FakeScreen:
    """A screen that records lines and partial texts."""

    live = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.partials: list[str] = []

    def print_line(self, text: str) -> None:
        """Record a line."""
        self.lines.append(text)

    def show_partial(self, text: str) -> None:
        """Record a partial text."""
        self.partials.append(text)

    def print_table(self, title: str, headers: Any, rows: Any, texts: int = 1) -> None:
        """Fail: a demo session prints no table."""
        raise AssertionError("a conversation shows no table")

    def show_partial_table(self, headers: Any, rows: Any, texts: int = 1) -> None:
        """Fail: a demo session shows no table."""
        raise AssertionError("a conversation shows no table")

    def __enter__(self) -> FakeScreen:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        """Return the lines without their times."""
        return [line.split(" s  ", 1)[1] for line in self.lines]


@contextlib.contextmanager
def talking_to(bot: EmbeddedBot) -> Iterator[tuple[DemoSession, FakeScreen, RTVIClient]]:
    """Connect to a bot, and yield a demo session, its screen and its client."""
    source, monitor, screen = UtteranceSource(16_000), PlaybackMonitor(), FakeScreen()
    client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=source, speaker=monitor, connect_timeout=GUARD)
    session = DemoSession(client, source, monitor, screen)
    with client:
        yield session, screen, client


@contextlib.contextmanager
def at_work(bot: EmbeddedBot, work: Callable[[BotSession], None]) -> Iterator[None]:
    """Run `work` on a thread, once a client is ready."""

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
    """Send a message as the bot."""
    session.send({"label": "rtvi-ai", "type": type_, **({} if data is None else {"data": data})})


def test_each_part_is_said_after_the_answer_to_the_one_before(two_words: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two utterances, two answers, alternating."""
    monkeypatch.setattr(activity, "_SENTENCE_PAUSE", 0.2)
    speech = load_script(two_words)
    with EmbeddedBot(transcripts=speech.words, hangover=0.2) as bot, talking_to(bot) as (demo, screen, _):
        demo.run(speech, greeting=0, timeout=GUARD)
    assert screen.texts == [
        "[you say part 1 of 2, 0.5 s]",
        "you  First word.",
        "bot  You said: First word.",
        "[you say part 2 of 2, 0.4 s]",
        "you  Second word.",
        "bot  You said: Second word.",
    ]
    assert screen.partials[0] == "you  First"
    assert demo.answers == 2
    assert len(demo.utterance_times) == len(demo.transcript_times) == 2


def test_a_bot_that_greets_is_heard_out_first(one_word: Path) -> None:
    """The first utterance starts after the greeting and the pause that follows it."""
    over: list[float] = []

    def greet(session: BotSession) -> None:
        say(session, "bot-started-speaking")
        say(session, "bot-transcription", {"text": "Welcome!"})
        over.append(time.monotonic())
        say(session, "bot-stopped-speaking")

    speech = load_script(one_word)
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, greet), talking_to(bot) as (demo, screen, _):
        demo.run(
            speech, greeting=2 * GUARD, timeout=GUARD
        )  # longer than the test: the greeting timeout does not end the wait
    assert demo.utterance_times[0] - over[0] > 0.7
    assert screen.texts[1:3] == ["bot  Welcome!", "[you say part 1 of 1, 0.5 s]"]
    assert demo.answers == 1


def test_a_function_that_the_bot_calls_is_shown(one_word: Path) -> None:
    """The name and the arguments, as far as the bot reports them."""

    def call(session: BotSession) -> None:
        known = {"tool_call_id": "1", "function_name": "get_weather", "arguments": {"city": "Paris"}}
        say(session, "llm-function-call-in-progress", known)
        say(session, "llm-function-call-in-progress", {"tool_call_id": "2"})

    speech = load_script(one_word)
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, call), talking_to(bot) as (demo, screen, _):
        demo.run(speech, greeting=0, timeout=GUARD)
    calls = [text for text in screen.texts if text.startswith("[the bot calls")]
    assert calls == ['[the bot calls get_weather {"city": "Paris"}]', "[the bot calls a function {}]"]


def test_a_bot_without_transcripts_is_detected_by_its_audio(one_word: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transcripts and speaking events, audio alone is an answer, and silence is its end."""
    monkeypatch.setattr(activity, "_SYNTHESIS_PAUSE", 0.2)
    speech = load_script(one_word)
    with EmbeddedBot() as bot, _audio_only(), talking_to(bot) as (demo, screen, _):
        demo.run(speech, greeting=0, timeout=GUARD)
    assert demo.answers == 1
    assert screen.texts == ["[you say part 1 of 1, 0.5 s]"]


@contextlib.contextmanager
def _audio_only() -> Iterator[None]:
    """Have bots send nothing but bot-ready and audio."""
    original = BotSession.send

    def send(session: BotSession, message: Any) -> None:
        if message["type"] == "bot-ready":
            original(session, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BotSession, "send", send)
        yield


def test_a_bot_that_never_answers_is_not_waited_for_forever(one_word: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next utterance is played after ANSWER_TIMEOUT."""
    monkeypatch.setattr(activity, "ANSWER_TIMEOUT", 0.3)
    with EmbeddedBot(speech_threshold=30_000.0) as bot, talking_to(bot) as (demo, _, _):
        demo.run(load_script(one_word), greeting=0, timeout=GUARD)
    assert demo.answers == 0


def test_a_bot_that_never_tells_that_it_stopped_is_not_waited_for_forever(
    one_word: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence ends an answer although the bot reports that it speaks."""
    monkeypatch.setattr(activity, "ANSWER_TIMEOUT", 0.3)
    with (
        EmbeddedBot(speech_threshold=30_000.0) as bot,
        at_work(bot, lambda session: say(session, "bot-started-speaking")),
        talking_to(bot) as (demo, _, _),
    ):
        demo.run(load_script(one_word), greeting=5, timeout=GUARD)
    assert (len(demo.utterance_times), demo.answers) == (1, 0)


def test_the_timeout_ends_the_conversation(one_word: Path) -> None:
    """A bot that never stops speaking cannot block the demo."""
    endless = " ".join(["word"] * 1000)
    with (
        EmbeddedBot(replies=endless, echo=False) as bot,
        talking_to(bot) as (demo, _, _),
        takes(2.5, at_least=1.4),
        pytest.raises(RequestTimeoutError, match="--timeout"),
    ):
        demo.run(load_script(one_word), greeting=0, timeout=1.5)


def test_a_session_that_ends_early_says_how(two_words: Path) -> None:
    """Code, reason and initiator are in the error, and an error that the bot reported before is printed."""

    def leave(session: BotSession) -> None:
        say(session, "error", {"error": "no credit left", "fatal": False})
        session.close(1008, "out of money")

    with (
        EmbeddedBot() as bot,
        at_work(bot, leave),
        talking_to(bot) as (demo, screen, _),
        pytest.raises(DisconnectedError, match="by the server, code 1008, out of money") as caught,
    ):
        demo.run(load_script(two_words), greeting=0, timeout=GUARD)
    assert caught.value.code == 1008
    assert "the bot reports an error: no credit left" in screen.texts


def test_a_bot_that_hangs_up_after_its_last_word_is_no_failure(one_word: Path) -> None:
    """The last answer counts although the session ends right after it."""
    speech = load_script(one_word)

    def hang_up(session: BotSession) -> None:
        assert spoken.wait(GUARD)
        session.close()

    spoken = threading.Event()
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, hang_up), talking_to(bot) as (demo, _, client):
        client.on("bot-started-speaking", spoken.set)
        demo.run(speech, greeting=0, timeout=GUARD)
    assert demo.answers == 1


def test_the_monitor_knows_when_all_audio_has_been_played() -> None:
    """Audio counts with its duration, however fast it arrives; silence is no audio; an interruption ends it."""
    monitor = PlaybackMonitor()
    monitor.write(quiet(1.0), 16_000)
    assert monitor.activity.last_audible == monitor.activity.playback_ends_at == float("-inf")
    begin = time.monotonic()
    monitor.write(tone(0.5), 16_000)
    monitor.write(tone(0.5), 16_000)
    assert begin <= monitor.activity.last_audible <= time.monotonic()
    # The second of silence is played first.
    assert begin + 1.9 < monitor.activity.playback_ends_at <= time.monotonic() + 2.0
    monitor.drop()
    assert monitor.activity.playback_ends_at <= time.monotonic()
