"""A conversation that a user holds: what he types and presses, what he is shown, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DeviceError,
    DisconnectedError,
    RTVIClient,
    RTVIEvent,
    RTVIMessage,
    UnsupportedFeatureError,
    WebSocketTransport,
)
from rtvi_sync.cli import bot_activity as activity
from rtvi_sync.cli.console import Key, Status
from rtvi_sync.cli.talk_session import Talk
from rtvi_sync.media import BytesSink, MediaDeviceInfo, WavSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.clients import bot_says, memory_client, transport_of, websocket_client
from tests.support.slowness import GUARD

Script = Iterator[str | Key | None]


class FakeDesk:
    """A console whose user does what a script says: what it yields is typed or pressed; None: nothing yet."""

    def __init__(self, *, attended: bool = True) -> None:
        self.attended = attended
        self.lines: list[str] = []
        self.statuses: list[Status] = []
        self.script: Script = iter(())

    def line(self, text: str) -> None:
        self.lines.append(text)

    def said(self, who: str, text: str) -> None:
        self.lines.append(f"{who}: {text}")

    def show(self, status: Status) -> None:
        self.statuses.append(status)

    def take(self) -> str | Key | None:
        return next(self.script, None)

    def __enter__(self) -> FakeDesk:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def until(self, condition: Callable[[], object], what: str = "what the script waits for") -> Script:
        """Nothing is typed until the condition is true."""
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, f"{what} has not come: {self.lines}"
            yield None

    def until_line(self, line: str) -> Script:
        """Nothing is typed until this line is shown."""
        return self.until(lambda: line in self.lines, line)


@pytest.fixture
def console() -> FakeDesk:
    """Somebody sits there."""
    return FakeDesk()


def hold(client: RTVIClient, console: FakeDesk, *, voice_ended: bool = True) -> Talk:
    """Holds a conversation to its end."""
    talk = Talk(client, console, mic="file.wav", speaker="none", voice_ended=lambda: voice_ended)
    try:
        talk.hold(client.connect)
    finally:
        client.close()
    return talk


def deaf_client(url: str) -> RTVIClient:
    """A client that neither speaks nor plays."""
    return RTVIClient(transport=WebSocketTransport(url), enable_mic=False, speaker=BytesSink(), connect_timeout=GUARD)


def test_what_is_typed_is_sent_at_once_and_shown_with_the_answer(console: FakeDesk) -> None:
    """Each line is the user's; blank ones are not sent; the end of what is typed ends the conversation."""

    def script() -> Script:
        yield from ("  Hello there! ", "  ", "")
        yield from console.until_line("bot: You said: Hello there!")
        yield Key.END

    console.script = script()
    with EmbeddedBot() as bot:
        hold(deaf_client(bot.ws_url), console)
        session = bot.wait_for_session(1)
        sent = [message for message in session.messages if message["type"] == "send-text"]
    assert [message["data"]["content"] for message in sent] == ["Hello there!"]
    assert console.lines == [
        "connected to rtvi_sync.testing 0.1.0, RTVI version 2.2.0",
        "you: Hello there!",
        "bot: You said: Hello there!",
    ]
    assert console.statuses[0].state == "connecting ..."
    assert console.statuses[-1].state == "0:00"


def test_lines_of_a_pipe_wait_for_the_answers_to_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is not an interruption of the first answer; after the last answer it is over."""
    monkeypatch.setattr(activity, "_SETTLED", 0.1)
    console = FakeDesk(attended=False)
    console.script = iter(("one", "two", Key.END))
    with EmbeddedBot() as bot:
        hold(deaf_client(bot.ws_url), console)
    assert console.lines[1:] == ["you: one", "bot: You said: one", "you: two", "bot: You said: two"]


def test_a_pipe_does_not_wait_for_ever_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bot that says nothing is given up, and the next line is sent."""
    monkeypatch.setattr(activity, "PATIENCE", 0.1)
    console = FakeDesk(attended=False)
    console.script = iter(("one", "two", Key.END))
    client = memory_client(enable_mic=False)
    hold(client, console)
    assert console.lines[1:] == ["you: one", "you: two"]
    contents = [message.data["content"] for message in transport_of(client).sent if message.type == "send-text"]
    assert contents == ["one", "two"]


def test_a_voice_is_heard_out_and_seen(one_word: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A WAV file is said and answered; words appear while they are said, and both levels go up and down again."""
    monkeypatch.setattr(activity, "_SETTLED", 0.4)
    console = FakeDesk(attended=False)
    console.script = iter((Key.END,))
    source = WavSource(one_word)
    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2) as bot:
        client = RTVIClient(
            transport=WebSocketTransport(bot.ws_url), mic=source, speaker=BytesSink(), connect_timeout=GUARD
        )
        talk = Talk(client, console, mic="word.wav", speaker="none", voice_ended=partial(source.wait, 0))
        try:
            talk.hold(client.connect)
        finally:
            client.close()
    assert console.lines[1:] == ["you: Hello my bot.", "bot: You said: Hello my bot."]
    assert ("you", "Hello") in [status.partial for status in console.statuses]
    assert console.statuses[-1].partial is None
    for name in ("user", "bot"):
        levels = [getattr(status, name) for status in console.statuses]
        assert levels[0] == levels[-1] == -100
        assert -30 < max(levels) <= 0
    assert {(status.mic, status.speaker, status.muted) for status in console.statuses} == {("word.wav", "none", False)}


def test_a_device_without_an_end_keeps_a_conversation_going() -> None:
    """A pipe that ends does not take the microphone from a user: the bot ends it here."""
    console = FakeDesk(attended=False)
    client = memory_client()

    def script() -> Script:
        yield Key.END
        yield from console.until(lambda: len(console.statuses) > 10)
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    hold(client, console, voice_ended=False)
    assert console.lines[1:] == ["The bot ended the session (code 1000)"]


def test_a_key_mutes_and_unmutes(console: FakeDesk) -> None:
    """The status says which it is."""

    def script() -> Script:
        for muted in (True, False):
            yield Key.MUTE
            yield from console.until(lambda muted=muted: console.statuses[-1].muted is muted)
            assert client.is_mic_enabled is not muted
        yield Key.END

    console.script = script()
    with EmbeddedBot() as bot:
        client = websocket_client(bot)
        hold(client, console)
    assert not console.statuses[0].muted


def info(kind: str, name: str) -> MediaDeviceInfo:
    """A device that there is not."""
    return MediaDeviceInfo(device_id=f"Host/{name}", kind=kind, label=name)


class Devices:
    """Devices in the place of a client's: the next microphone fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.mics = [info("audioinput", f"mic {number}") for number in range(count)]
        self.speakers = [info("audiooutput", f"speaker {number}") for number in range(count)]
        self.mic, self.speaker = self.mics[0], self.speakers[-1]
        monkeypatch.setattr(RTVIClient, "get_all_mics", lambda _: self.mics)
        monkeypatch.setattr(RTVIClient, "get_all_speakers", lambda _: self.speakers)
        monkeypatch.setattr(RTVIClient, "selected_mic", property(lambda _: self.mic))
        monkeypatch.setattr(RTVIClient, "selected_speaker", property(lambda _: self.speaker))
        monkeypatch.setattr(RTVIClient, "update_mic", lambda _, device_id: self.fail(device_id))
        monkeypatch.setattr(RTVIClient, "update_speaker", lambda _, device_id: self.change_speaker(device_id))

    def fail(self, device_id: str) -> None:
        raise DeviceError(f"{device_id} is in use", devices=("mic",), type="in-use")

    def change_speaker(self, device_id: str) -> None:
        self.speaker = next(device for device in self.speakers if device.device_id == device_id)


def test_keys_change_devices(console: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next of its kind, after the last the first; one that fails is told of, and everything goes on."""
    Devices(monkeypatch, 3)

    def script() -> Script:
        yield from (Key.NEXT_MIC, Key.NEXT_SPEAKER)
        yield from console.until(lambda: console.statuses[-1].speaker == "speaker 0")
        yield Key.END

    console.script = script()
    hold(memory_client(), console)
    assert console.lines[1:] == ["Host/mic 1 is in use"]
    assert console.statuses[0].speaker == "speaker 2"
    assert console.statuses[-1].mic == "mic 0"


def test_a_device_that_cannot_be_used_is_passed_over(console: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each press tries the next one, though none has been taken."""
    Devices(monkeypatch, 3)
    console.script = iter((Key.NEXT_MIC, Key.NEXT_MIC, Key.NEXT_MIC, Key.END))
    hold(memory_client(), console)
    assert console.lines[1:] == ["Host/mic 1 is in use", "Host/mic 2 is in use", "Host/mic 0 is in use"]


def test_there_may_be_no_other_device(console: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line says so."""
    Devices(monkeypatch, 1)
    console.script = iter((Key.NEXT_MIC, Key.NEXT_SPEAKER, Key.END))
    hold(memory_client(), console)
    assert console.lines[1:] == ["There is no other microphone", "There is no other speaker"]


def test_what_goes_wrong_is_a_line_and_no_end(console: FakeDesk) -> None:
    """Errors of the bot and of a device; a message that the bot does not know."""
    client = memory_client()

    def script() -> Script:
        bot_says(client, "error", {"error": "no brain", "fatal": False})
        transport_of(client).options.on_event(RTVIEvent.DEVICE_ERROR, DeviceError("the mic is gone", devices=("mic",)))
        yield from console.until_line("the mic is gone (the conversation goes on)")
        bot_says(client, "bot-transcription", {"text": "Hello?"})
        yield from console.until_line("bot: Hello?")
        yield Key.END

    console.script = script()
    hold(client, console)
    assert console.lines[1:] == [
        "The bot reports an error: no brain",
        "the mic is gone (the conversation goes on)",
        "bot: Hello?",
    ]


def test_a_bot_that_takes_no_text_is_told_of(console: FakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was typed is not shown as said."""

    def refuse(*_: Any) -> None:
        raise UnsupportedFeatureError("This bot takes no text", feature="send-text")

    monkeypatch.setattr(RTVIClient, "send_text", refuse)
    console.script = iter(("Hello!", Key.END))
    hold(memory_client(), console)
    assert console.lines[1:] == ["This bot takes no text"]


def test_a_bot_that_only_tells_words_is_quoted_turn_by_turn(console: FakeDesk) -> None:
    """They appear as they come, and are a line when the turn is over, or the conversation."""
    client = memory_client()

    def script() -> Script:
        for word in ("Wel", "come"):
            bot_says(client, "bot-llm-text", {"text": word})
        yield from console.until(lambda: console.statuses[-1].partial == ("bot", "Welcome"))
        bot_says(client, "bot-stopped-speaking")
        yield from console.until_line("bot: Welcome")
        bot_says(client, "bot-llm-text", {"text": "Bye"})
        yield from console.until(lambda: console.statuses[-1].partial == ("bot", "Bye"))
        yield Key.END

    console.script = script()
    hold(client, console)
    assert console.lines[1:] == ["bot: Welcome", "bot: Bye"]


def test_interruptions_are_noted(console: FakeDesk) -> None:
    """A recording has nothing of what was dropped."""
    client = memory_client()

    def script() -> Script:
        bot_says(client, "bot-interrupted")
        bot_says(client, "bot-transcription", {"text": "Sorry?"})
        yield from console.until_line("bot: Sorry?")
        yield Key.END

    console.script = script()
    before = time.monotonic()
    talk = hold(client, console)
    assert len(talk.interruptions) == 1
    assert before < talk.interruptions[0] < time.monotonic()


def test_a_line_that_breaks_is_a_failure(console: FakeDesk) -> None:
    """What the bot was saying is shown, and the reason is raised."""
    client = memory_client()

    def script() -> Script:
        bot_says(client, "bot-llm-text", {"text": "I was just"})
        yield from console.until(lambda: console.statuses[-1].partial is not None)
        transport_of(client).end(CloseInfo(initiator="network"))

    console.script = script()
    with pytest.raises(DisconnectedError, match="lost"):
        hold(client, console)
    assert console.lines[1:] == ["bot: I was just"]


def test_a_bot_that_cannot_be_reached_is_a_failure(console: FakeDesk) -> None:
    """Nothing is shown but that it was tried."""

    def refuse(_: Any, message: RTVIMessage) -> None:
        raise DisconnectedError("nobody there")

    with pytest.raises(DisconnectedError, match="nobody there"):
        hold(memory_client(refuse), console)
    assert console.lines == []
    assert {status.state for status in console.statuses} == {"connecting ..."}
