"""The interactive conversation: input, output, and how it ends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rtvi_sync import (
    CloseInfo,
    DeviceError,
    DisconnectedError,
    RTVIClient,
    RTVIError,
    RTVIEvent,
    RTVIMessage,
    UnsupportedFeatureError,
    WebSocketTransport,
)
from rtvi_sync.cli.console import Key, Status
from rtvi_sync.cli.talk_session import TalkSession
from rtvi_sync.media import BytesSink, BytesSource, MediaDeviceInfo, WavSource
from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support import limits
from tests.support.by_ear import ear_client
from tests.support.clients import bot_says, memory_client, transport_of, websocket_client
from tests.support.probes import is_answered
from tests.support.scripted_talk import RATE, tone
from tests.support.slowness import GUARD

pytestmark = pytest.mark.inside

Script = Iterator[str | Key | None]


class FakeConsole:
    """A console whose input a script yields: lines and keys; None: nothing yet."""

    def __init__(self, *, interactive: bool = True) -> None:
        self.interactive = interactive
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.statuses: list[Status] = []
        self.script: Script = iter(())

    def print_line(self, text: str, style: str = "") -> None:
        """Record a line, or a note."""
        (self.notes if style == "faint" else self.lines).append(text)

    def print_utterance(self, who: str, text: str) -> None:
        """Record an utterance."""
        self.lines.append(f"{who}: {text}")

    def show_status(self, status: Status) -> None:
        """Record a status."""
        self.statuses.append(status)

    def poll(self) -> str | Key | None:
        """Return the script's next item."""
        return next(self.script, None)

    def __enter__(self) -> FakeConsole:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def until(self, condition: Callable[[], object], what: str = "what the script waits for") -> Script:
        """Yield None until the condition is true."""
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, f"{what} has not come: {self.lines}"
            yield None

    def until_line(self, line: str) -> Script:
        """Yield None until this line is printed."""
        return self.until(lambda: line in self.lines, line)


@pytest.fixture
def console() -> FakeConsole:
    """Return an interactive console."""
    return FakeConsole()


def run_session(client: RTVIClient, console: FakeConsole, *, mic_ended: bool = True) -> TalkSession:
    """Run a conversation to its end."""
    session = TalkSession(client, console, mic="file.wav", speaker="none", mic_ended=lambda: mic_ended)
    try:
        session.run(client.connect)
    finally:
        client.close()
    return session


def bot_writes(client: RTVIClient, text: str) -> None:
    """Run the bot's language model."""
    bot_says(client, "bot-llm-started")
    bot_says(client, "bot-llm-text", {"text": text})
    bot_says(client, "bot-llm-stopped")


def text_client(url: str) -> RTVIClient:
    """Return a client that sends no audio and plays none."""
    return RTVIClient(transport=WebSocketTransport(url), enable_mic=False, speaker=BytesSink(), connect_timeout=GUARD)


def test_what_is_typed_is_sent_at_once_and_shown_with_the_answer(console: FakeConsole) -> None:
    """Lines are stripped; blank ones are not sent; the end of the input ends the conversation."""

    def script() -> Script:
        yield from ("  Hello there! ", "  ", "")
        yield from console.until_line("bot: You said: Hello there!")
        yield Key.END

    console.script = script()
    with EmbeddedBot() as bot:
        run_session(text_client(bot.ws_url), console)
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


def test_who_speaks_without_words(console: FakeConsole) -> None:
    """Over a transport that carries no messages lines tell who speaks, and a text that is typed is not sent."""

    def script() -> Script:
        yield from ("Hello",)
        yield from console.until(lambda: console.notes, "the latency")
        yield Key.END

    console.script = script()
    run_session(ear_client(mic=BytesSource(tone(0.2) + bytes(RATE), RATE)), console)
    assert console.lines[0] == "calling as by ear"
    refusal = "Not sent, because a telephone sends only keys (0-9, * and #): Hello"
    assert refusal in console.lines
    others = [line for line in console.lines[1:] if line != refusal]
    assert others == ["you: (speaks)", "bot: (speaks)"]
    assert any(note.strip().startswith("voice to voice") for note in console.notes)


def test_keys_are_typed_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a pipe keys are pressed; a text costs a line of advice, and the conversation goes on to its end."""
    limits.patch(monkeypatch, talk_answer=0.1)
    console = FakeConsole(interactive=False)
    console.script = iter(("hello there", "1", "2#", Key.END))
    with EmbeddedBot() as bot:
        caller = RTVIClient.for_url(
            bot.ws_url, transport="twilio", mic=False, speaker=BytesSink(), connect_timeout=GUARD
        )
        run_session(caller, console)
        bot.wait_for_session(GUARD).wait_for_dtmf("12#", GUARD)
    assert console.lines == [
        "calling as twilio",
        "Not sent, because a telephone sends only keys (0-9, * and #): hello there",
        "you: (keys) 1",
        "you: (keys) 2#",
    ]


def test_a_text_for_a_telephone(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a pipe, a call in which nothing is said, because all lines are texts, is an error."""
    limits.patch(monkeypatch, talk_answer=0.1)
    console = FakeConsole(interactive=False)
    console.script = iter(("hello there", Key.END))
    with EmbeddedBot() as bot:
        caller = RTVIClient.for_url(
            bot.ws_url, transport="twilio", mic=False, speaker=BytesSink(), connect_timeout=GUARD
        )
        with pytest.raises(RTVIError, match="Nothing was said: a telephone sends no text"):
            run_session(caller, console)


def test_a_bot_that_hangs_up_while_keys_are_pressed() -> None:
    """The error has the bot's reason."""
    console = FakeConsole(interactive=False)
    console.script = iter(("1" + 100 * "2", Key.END))
    with EmbeddedBot() as bot:

        def refuse() -> None:
            session = bot.wait_for_session(GUARD)
            session.wait_for_dtmf("12", GUARD)
            session.close(1008, "No such extension")

        caller = RTVIClient.for_url(
            bot.ws_url, transport="twilio", mic=False, speaker=BytesSink(), connect_timeout=GUARD
        )
        with ThreadPoolExecutor() as pool:
            refused = pool.submit(refuse)
            with pytest.raises(DisconnectedError) as caught:
                run_session(caller, console)
            refused.result()
    assert str(caught.value) == "The bot ended the session (code 1008: No such extension); not all lines were answered"


def test_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a line and a microphone the user is told so, once, and the bot may still greet."""
    limits.patch(monkeypatch, talk_answer=0.1)
    console = FakeConsole(interactive=False)
    console.script = iter((Key.END,))
    run_session(memory_client(enable_mic=False), console)
    assert console.lines[1:] == ["There is nothing to say: no line was typed, and --mic names no audio file"]


def test_lines_of_a_pipe_wait_for_the_answers_to_those_before() -> None:
    """The second line does not interrupt the first answer; the conversation ends after the last answer."""
    console = FakeConsole(interactive=False)
    console.script = iter(("one", "two", Key.END))
    with EmbeddedBot() as bot:
        run_session(text_client(bot.ws_url), console)
    assert console.lines[1:] == ["you: one", "bot: You said: one", "you: two", "bot: You said: two"]


def test_a_greeting_is_no_answer() -> None:
    """The first line is sent while the bot greets; the second one waits for the answer to the first."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)

    def script() -> Script:
        bot_says(client, "bot-llm-started")
        bot_says(client, "bot-llm-text", {"text": "Welcome"})
        yield from ("one", "two", Key.END)
        yield from console.until_line("you: one")
        bot_says(client, "bot-interrupted")
        rounds = len(console.statuses)
        yield from console.until(lambda: len(console.statuses) > rounds + 5)
        (line,) = [message for message in transport_of(client).sent if message.type == "send-text"]
        chat = {"text": "one", "input_type": "chat", "final": True, "msg_id": line.id}
        bot_says(client, "user-input", chat)
        bot_writes(client, "First.")
        bot_says(client, "bot-started-speaking")
        bot_says(client, "bot-tts-text", {"text": "First."})
        bot_says(client, "bot-stopped-speaking")
        yield from console.until_line("you: two")
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    with pytest.raises(DisconnectedError):
        run_session(client, console)
    assert "bot: Welcome" in console.lines
    said = [line for line in console.lines[1:] if line != "bot: Welcome"]
    assert said == ["you: one", "bot: First.", "you: two"]


def test_a_pipe_waits_for_an_answer_with_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the bot says nothing, the next line is sent after a time."""
    limits.patch(monkeypatch, talk_answer=0.1)
    console = FakeConsole(interactive=False)
    console.script = iter(("one", "two", Key.END))
    client = memory_client(enable_mic=False)
    run_session(client, console)
    assert console.lines[1:] == ["you: one", "you: two"]
    contents = [message.data["content"] for message in transport_of(client).sent if message.type == "send-text"]
    assert contents == ["one", "two"]


def test_a_wav_file_is_played_to_its_end(one_word: Path) -> None:
    """A WAV file is played to its end and answered; interim words are shown, and both levels rise."""
    console = FakeConsole(interactive=False)
    console.script = iter((Key.END,))
    source = WavSource(one_word)
    with EmbeddedBot(transcripts=["Hello my bot."], hangover=0.2) as bot:
        client = RTVIClient(
            transport=WebSocketTransport(bot.ws_url), mic=source, speaker=BytesSink(), connect_timeout=GUARD
        )
        session = TalkSession(client, console, mic="word.wav", speaker="none", mic_ended=partial(source.wait, 0))
        try:
            session.run(client.connect)
        finally:
            client.close()
    assert console.lines[1:] == ["you: Hello my bot.", "bot: You said: Hello my bot."]
    assert ("you", "Hello") in [status.partial for status in console.statuses]
    assert console.statuses[-1].partial is None
    for name in ("user", "bot"):
        levels = [getattr(status, name) for status in console.statuses]
        assert levels[0] == -100
        assert -30 < max(levels) <= 0
    assert {(status.mic, status.speaker, status.muted) for status in console.statuses} == {("word.wav", "none", False)}


def test_an_answer_before_the_silence_of_a_file_has_ended() -> None:
    """An answer before the silence of a file has ended is the last one: nothing more is waited for."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)
    ended: list[bool] = []
    session = TalkSession(
        client, console, mic="word.wav", speaker="none", mic_ended=lambda: bool(ended), mic_silence=GUARD
    )

    def script() -> Script:
        yield Key.END
        bot_writes(client, "First.")
        bot_says(client, "bot-started-speaking")
        bot_says(client, "bot-tts-text", {"text": "First."})
        bot_says(client, "bot-stopped-speaking")
        yield from console.until(lambda: is_answered(session))
        ended.append(True)
        rounds = len(console.statuses)
        yield from console.until(lambda: len(console.statuses) > rounds + 5)
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    try:
        session.run(client.connect)
    finally:
        client.close()
    assert console.lines[1:] == ["bot: First."]


def test_a_device_without_an_end_keeps_a_conversation_going() -> None:
    """The end of stdin does not end a conversation with an open microphone: the bot ends it here."""
    console = FakeConsole(interactive=False)
    client = memory_client()

    def script() -> Script:
        yield Key.END
        yield from console.until(lambda: len(console.statuses) > 10)
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    run_session(client, console, mic_ended=False)
    assert console.lines[1:] == ["The bot ended the session (code 1000)"]


def test_a_key_mutes_and_unmutes(console: FakeConsole) -> None:
    """The status says whether the microphone is muted."""

    def script() -> Script:
        for muted in (True, False):
            yield Key.MUTE
            yield from console.until(partial(lambda muted: console.statuses[-1].muted is muted, muted))
            assert client.is_mic_enabled is not muted
        yield Key.END

    console.script = script()
    with EmbeddedBot() as bot:
        client = websocket_client(bot)
        run_session(client, console)
    assert not console.statuses[0].muted


def info(kind: str, name: str) -> MediaDeviceInfo:
    """Return the description of a device."""
    return MediaDeviceInfo(device_id=f"Host/{name}", kind=kind, label=name)


class Devices:
    """Replaces a client's devices; a change of the microphone fails."""

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
        """Refuse to change the microphone."""
        raise DeviceError(f"{device_id} is in use", devices=("mic",), type="in-use")

    def change_speaker(self, device_id: str) -> None:
        """Change the speaker."""
        self.speaker = next(device for device in self.speakers if device.device_id == device_id)


def test_keys_change_devices(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next of its kind is used, after the last the first; a failure is printed, and the conversation continues."""
    Devices(monkeypatch, 3)

    def script() -> Script:
        yield from (Key.NEXT_MIC, Key.NEXT_SPEAKER)
        yield from console.until(lambda: console.statuses[-1].speaker == "speaker 0")
        yield Key.END

    console.script = script()
    run_session(memory_client(), console)
    assert console.lines[1:] == ["Host/mic 1 is in use"]
    assert console.statuses[0].speaker == "speaker 2"
    assert console.statuses[-1].mic == "mic 0"


def test_a_device_that_cannot_be_used_is_passed_over(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key press tries the next one, although none could be used."""
    Devices(monkeypatch, 3)
    console.script = iter((Key.NEXT_MIC, Key.NEXT_MIC, Key.NEXT_MIC, Key.END))
    run_session(memory_client(), console)
    assert console.lines[1:] == ["Host/mic 1 is in use", "Host/mic 2 is in use", "Host/mic 0 is in use"]


def test_there_may_be_no_other_device(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line says so."""
    Devices(monkeypatch, 1)
    console.script = iter((Key.NEXT_MIC, Key.NEXT_SPEAKER, Key.END))
    run_session(memory_client(), console)
    assert console.lines[1:] == ["There is no other microphone", "There is no other speaker"]


def test_errors_are_lines_and_no_end(console: FakeConsole) -> None:
    """An error of the bot and one of a device are printed."""
    client = memory_client()

    def script() -> Script:
        bot_says(client, "error", {"error": "no brain", "fatal": False})
        transport_of(client).options.on_event(RTVIEvent.DEVICE_ERROR, DeviceError("the mic is gone", devices=("mic",)))
        yield from console.until_line("the mic is gone (the conversation continues)")
        bot_writes(client, "Hello?")
        yield from console.until_line("bot: Hello?")
        yield Key.END

    console.script = script()
    run_session(client, console)
    assert console.lines[1:] == [
        "The bot reports an error: no brain",
        "the mic is gone (the conversation continues)",
        "bot: Hello?",
    ]


def test_a_bot_without_text_input_is_an_error_line(console: FakeConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line is not printed as an utterance."""

    def refuse(*_: Any) -> None:
        raise UnsupportedFeatureError("This bot takes no text", feature="send-text")

    monkeypatch.setattr(RTVIClient, "send_text", refuse)
    console.script = iter(("Hello!", Key.END))
    run_session(memory_client(), console)
    assert console.lines[1:] == ["This bot takes no text"]


def test_a_line_of_a_pipe_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a pipe that cannot be sent ends the program with the error at once."""

    def refuse(*_: Any) -> None:
        raise UnsupportedFeatureError("This bot takes no text", feature="send-text")

    monkeypatch.setattr(RTVIClient, "send_text", refuse)
    console = FakeConsole(interactive=False)
    console.script = iter(("one", "two", Key.END))
    with pytest.raises(UnsupportedFeatureError, match="This bot takes no text"):
        run_session(memory_client(), console)


def test_what_the_bot_writes_is_a_line_at_the_end_of_each_run(console: FakeConsole) -> None:
    """Words are partial text until the model has stopped, or the conversation has ended."""
    client = memory_client()

    def script() -> Script:
        for word in ("Wel", "come"):
            bot_says(client, "bot-llm-text", {"text": word})
        yield from console.until(lambda: console.statuses[-1].partial == ("bot", "Welcome"))
        bot_says(client, "bot-llm-stopped")
        yield from console.until_line("bot: Welcome")
        bot_says(client, "bot-llm-text", {"text": "Bye"})
        yield from console.until(lambda: console.statuses[-1].partial == ("bot", "Bye"))
        yield Key.END

    console.script = script()
    run_session(client, console)
    assert console.lines[1:] == ["bot: Welcome", "bot: Bye"]


def test_a_lost_connection_is_a_failure(console: FakeConsole) -> None:
    """The bot's unfinished text is printed, and the reason is raised."""
    client = memory_client()

    def script() -> Script:
        bot_says(client, "bot-llm-text", {"text": "I was just"})
        yield from console.until(lambda: console.statuses[-1].partial is not None)
        transport_of(client).end(CloseInfo(initiator="network"))

    console.script = script()
    with pytest.raises(DisconnectedError, match="lost") as caught:
        run_session(client, console)
    assert "connect()" not in str(caught.value)  # no advice for a command
    assert console.lines[1:] == ["bot: I was just"]


@pytest.mark.parametrize("lines", [("one",), ("one", "two")])
def test_a_bot_that_leaves_lines_of_a_pipe_unanswered(lines: tuple[str, ...]) -> None:
    """A bot that leaves a line of a pipe unanswered makes the program fail, and later lines are not sent."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)

    def script() -> Script:
        yield from lines
        yield Key.END
        yield from console.until_line("you: one")
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    with pytest.raises(DisconnectedError, match=r"ended the session \(code 1000\); not all lines were answered"):
        run_session(client, console)
    assert console.lines[1:] == ["you: one"]


def test_a_greeting_is_no_answer_to_a_line_of_a_pipe() -> None:
    """A greeting does not count as the answer to a line of a pipe."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)

    def script() -> Script:
        yield "one"
        yield Key.END
        yield from console.until_line("you: one")
        bot_says(client, "bot-interrupted")
        bot_says(client, "bot-llm-started")
        bot_says(client, "bot-llm-text", {"text": "Welcome."})
        bot_says(client, "bot-llm-stopped")
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    with pytest.raises(DisconnectedError, match="not all lines were answered"):
        run_session(client, console)


def test_a_line_that_the_end_of_a_session_outruns() -> None:
    """A line that the end of the session outruns counts as not answered, although the line before was."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)

    def script() -> Script:
        yield "one"
        yield from console.until_line("you: one")
        bot_writes(client, "First.")
        yield from console.until_line("bot: First.")
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))
        while client.connected:
            yield None
        yield from ("two", Key.END)

    console.script = script()
    with pytest.raises(DisconnectedError, match="not all lines were answered"):
        run_session(client, console)
    assert console.lines[1:] == ["you: one", "bot: First."]


def test_a_bot_that_answers_the_last_line_and_leaves() -> None:
    """A bot that answers the last line and leaves is no failure, although the session ends before the turn."""
    console = FakeConsole(interactive=False)
    client = memory_client(enable_mic=False)

    def script() -> Script:
        yield from ("Bye", Key.END)
        yield from console.until_line("you: Bye")
        bot_says(client, "user-llm-text", {"text": "Bye"})
        bot_says(client, "bot-llm-started")
        bot_says(client, "bot-llm-text", {"text": "Bye."})
        transport_of(client).end(CloseInfo(code=1000, initiator="server"))

    console.script = script()
    run_session(client, console)
    assert console.lines[1:] == ["you: Bye", "bot: Bye.", "The bot ended the session (code 1000)"]


def test_a_bot_that_cannot_be_reached_is_a_failure(console: FakeConsole) -> None:
    """A bot that cannot be reached is a failure, and only the attempt is shown."""

    def refuse(_: Any, message: RTVIMessage) -> None:
        raise DisconnectedError("no connection")

    with pytest.raises(DisconnectedError, match="no connection"):
        run_session(memory_client(refuse), console)
    assert console.lines == []
    assert {status.state for status in console.statuses} == {"connecting ..."}


def test_what_is_noted_beside_the_words(console: FakeConsole) -> None:
    """A call, the latency of each answer, unheard words, and a summary are notes; the status shows the progress."""
    story = Reply(
        "Once upon a time there was a king. He had a castle at the sea.",
        call=("find", {"what": "story"}),
        result=1,
        report_level="full",
    )

    def script() -> Script:
        yield "Tell me a story"
        yield from console.until(lambda: console.statuses[-1].activity == "speaking")
        yield "Stop"
        yield from console.until_line("bot: Hello.")
        yield from console.until(lambda: console.statuses[-1].activity == "listening")
        yield Key.END

    console.script = script()
    with EmbeddedBot(replies={"story": story, "": "Hello."}) as bot:
        run_session(text_client(bot.ws_url), console)
    call, interrupted, answered, summary = map(str.strip, console.notes)
    assert call == 'calls find({"what": "story"})'
    assert re.match(r"first audio \d+\.\d\d s, interrupted; not heard: .*castle at the sea\.$", interrupted)
    assert re.match(r"first audio \d+\.\d\d s$", answered)
    assert re.match(r"2 turns in 0:\d\d, first audio .* \(median\), .* \(slowest\), 1 interrupted$", summary)
    assert {"thinking", "speaking", "listening"} <= {status.activity for status in console.statuses}


def test_a_pipe_gets_no_notes() -> None:
    """A program that reads the output gets the spoken words, and nothing else."""
    console = FakeConsole(interactive=False)
    console.script = iter(["Hello", Key.END])
    with EmbeddedBot() as bot:
        run_session(text_client(bot.ws_url), console)
    assert console.notes == []
