"""The demo's conversation: waits for a greeting, and says each utterance after the last answer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import DisconnectedError, RequestTimeoutError, RTVIClient, Turn, WebSocketTransport
from rtvi_sync.cli.demo_session import DemoSession
from rtvi_sync.cli.scripted_speech import load_script
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.slowness import GUARD, takes

pytestmark = pytest.mark.inside


class FakeScreen:
    """A screen that records lines and partial texts."""

    live = True

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.partials: list[str] = []
        self.room = 1000  # lines until it is closed

    def print_line(self, text: str, style: str = "", mark: str = "") -> None:
        """Record a line."""
        if len(self.lines) >= self.room:
            raise BrokenPipeError
        self.lines.append(mark + text)

    def print_utterance(self, who: str, text: str, lead: str = "") -> None:
        """Record the spoken words."""
        self.print_line(f"{lead}{who}  {text}")

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
    screen, transport = FakeScreen(), WebSocketTransport(bot.ws_url)
    client = RTVIClient(transport=transport, mic=SilenceSource(), speaker=NullSink(), connect_timeout=GUARD)
    session = DemoSession(client, screen)
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


def test_each_part_is_said_after_the_answer_to_the_one_before(two_words: Path) -> None:
    """Two utterances, two answers, alternating."""
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
    assert screen.partials[0].startswith("you  ")
    assert "you  First" in screen.partials


GREETING = (
    ("bot-llm-started", None),
    ("bot-llm-text", {"text": "Welcome!"}),
    ("bot-llm-stopped", None),
    ("bot-started-speaking", None),
)


def test_a_bot_that_greets_is_heard_out_first(one_word: Path) -> None:
    """The first utterance starts after the greeting, however long that takes."""
    began, waited = threading.Event(), threading.Event()

    def greet(session: BotSession) -> None:
        for message in GREETING:
            say(session, *message)
        assert waited.wait(GUARD)
        assert not any("part 1" in text for text in screen.texts)
        progress = {"accumulated_text": "Welcome!", "remaining_text": ""}
        more = {"segment_id": 1, "spoken_status": "completed", "spoken_progress": progress, "will_be_spoken": True}
        say(session, "bot-output", {"text": "Welcome!", "output_type": "sentence", **more})
        say(session, "bot-stopped-speaking")

    speech = load_script(one_word)
    with EmbeddedBot(transcripts=speech.words) as bot, talking_to(bot) as (demo, screen, client):
        client.on("bot-started-speaking", began.set)
        with at_work(bot, greet), pytest.MonkeyPatch.context() as patch:
            assert began.wait(GUARD)
            patch.setattr(client, "listen", _noting_the_second_call(client.listen, waited))
            demo.run(speech, greeting=0.001, timeout=GUARD)
    assert screen.texts[0] == "bot  Welcome!"
    assert screen.texts[-1] == "bot  You said: Hello."


def _noting_the_second_call(listen: Callable[[float], Turn], noted: threading.Event) -> Callable[[float], Turn]:
    calls: list[float] = []

    def listen_and_note(timeout: float) -> Turn:
        calls.append(timeout)
        if len(calls) == 2:
            noted.set()
        return listen(timeout)

    return listen_and_note


def test_a_bot_that_does_not_greet_is_spoken_to(one_word: Path) -> None:
    """The wait for a greeting ends."""
    speech = load_script(one_word)
    with EmbeddedBot(transcripts=speech.words) as bot, talking_to(bot) as (demo, screen, _):
        demo.run(speech, greeting=0.001, timeout=GUARD)
    assert screen.texts[2:] == ["you  Hello.", "bot  You said: Hello."]


def test_a_closed_output_ends_the_demo(two_words: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A closed output ends the demo with its own error, and is not logged as the error of a handler."""
    speech = load_script(two_words)
    with EmbeddedBot(transcripts=speech.words, hangover=0.2) as bot, talking_to(bot) as (demo, screen, _):
        screen.room = 1
        with pytest.raises(BrokenPipeError):
            demo.run(speech, greeting=0, timeout=GUARD)
    assert screen.texts == ["[you say part 1 of 2, 0.5 s]"]
    assert caplog.records == []


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


def test_a_bot_that_hears_nothing_is_an_error(one_word: Path) -> None:
    """The error names the parts that the bot may lack."""
    with (
        EmbeddedBot(speech_threshold=30_000.0) as bot,
        talking_to(bot) as (demo, _, _),
        pytest.raises(RequestTimeoutError, match="has not heard") as caught,
    ):
        demo.run(load_script(one_word), greeting=0, timeout=1.0)
    assert caught.value.kind == "not_heard"


def test_the_timeout_ends_the_conversation(one_word: Path) -> None:
    """A bot that never stops speaking cannot block the demo."""
    endless = " ".join(["word"] * 1000)
    with (
        EmbeddedBot(replies=endless, echo=False) as bot,
        talking_to(bot) as (demo, _, _),
        takes(2.5, at_least=1.4),
        pytest.raises(RequestTimeoutError, match="part 1 of 1 was not answered whole"),
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
    """The last answer counts although the session ends before the bot tells that it has stopped speaking."""
    speech = load_script(one_word)

    def hang_up(session: BotSession) -> None:
        assert spoken.wait(GUARD)
        session.close()

    spoken = threading.Event()
    with EmbeddedBot(transcripts=speech.words) as bot, at_work(bot, hang_up), talking_to(bot) as (demo, screen, client):
        client.on("bot-output", lambda output: spoken.set() if output.spoken_status == "completed" else None)
        demo.run(speech, greeting=0, timeout=GUARD)
    assert screen.texts[-1] == "bot  You said: Hello."
