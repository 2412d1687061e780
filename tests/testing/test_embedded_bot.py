"""The embedded bot over real sockets, spoken to by a client of another library."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pytest
import trustme
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rtvi_sync.errors import DisconnectedError, MissingExtraError, RequestTimeoutError
from rtvi_sync.protocol.frames import (
    AudioRawFrame,
    Frame,
    InterruptionFrame,
    MessageFrame,
    TextFrame,
    TranscriptionFrame,
    decode,
    encode,
)
from rtvi_sync.testing import BotSession, EmbeddedBot

RATE = 16000
LIMIT = 10.0
# Seconds of silence that end a turn here: short, so that the tests are.
QUICK = 0.2


def tone(seconds: float) -> bytes:
    return array("h", [int(8000 * math.sin(index / 7)) for index in range(round(seconds * RATE))]).tobytes()


def silence(seconds: float) -> bytes:
    return bytes(2 * round(seconds * RATE))


class Client:
    """The other end: raw frames over `websockets`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def send(self, type: str, data: Any = None, id: str = "id-1") -> None:
        self.send_json({"label": "rtvi-ai", "type": type, "id": id, "data": data})

    def send_json(self, message: Any) -> None:
        self.send_frame(MessageFrame(data=json.dumps(message)))

    def send_frame(self, frame: Frame) -> None:
        self.connection.send(encode(frame))

    def say(self, pcm: bytes, rate: int = RATE) -> None:
        for start in range(0, len(pcm), 640):
            self.send_frame(AudioRawFrame(audio=pcm[start : start + 640], sample_rate=rate))

    def receive(self) -> Frame:
        data = self.connection.recv(LIMIT)
        assert isinstance(data, bytes)
        frame = decode(data)
        assert frame is not None
        return frame

    def until(self, type: str) -> list[Any]:
        """Everything up to the first message of a type: messages as objects, other frames as they are."""
        items: list[Any] = []
        while True:
            frame = self.receive()
            items.append(json.loads(frame.data) if isinstance(frame, MessageFrame) else frame)
            if isinstance(frame, MessageFrame) and items[-1]["type"] == type:
                return items

    def message(self, type: str) -> dict[str, Any]:
        """The next message, which must be of this type."""
        (item,) = self.until(type)
        assert isinstance(item, dict)
        return item


@pytest.fixture
def talk() -> Iterator[Callable[[EmbeddedBot], Client]]:
    """Connects clients, and closes them at the end."""
    with contextlib.ExitStack() as stack:

        def connect_to(bot: EmbeddedBot) -> Client:
            return Client(stack.enter_context(connect(bot.ws_url, compression=None, close_timeout=1)))

        yield connect_to


Talk = Callable[[EmbeddedBot], Client]


def names(items: list[Any]) -> list[str]:
    """Types of messages and kinds of frames; what is repeated comes once."""
    kinds = [item["type"] if isinstance(item, dict) else type(item).__name__ for item in items]
    return [kind for kind, _ in groupby(kinds)]


def pcm_of(items: list[Any]) -> bytes:
    return b"".join(item.audio for item in items if isinstance(item, AudioRawFrame))


def threads_of_bots() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rtvi-bot")]


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


ANSWER = [
    "user-llm-text",
    "bot-llm-started",
    "bot-llm-text",
    "bot-transcription",
    "bot-llm-stopped",
    "bot-tts-started",
    "bot-output",
    "bot-started-speaking",
    "bot-output",
    "bot-tts-text",
    "AudioRawFrame",
    "bot-tts-stopped",
    "AudioRawFrame",
    "bot-stopped-speaking",
]


def test_a_text_turn_in_the_order_of_a_real_bot(talk: Talk) -> None:
    """send-text interrupts, is acknowledged with its id and answered in text and sound."""
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello"}, id="abc")
        items = client.until("bot-stopped-speaking")

    assert names(items) == ["InterruptionFrame", "bot-interrupted", "user-input", *ANSWER]
    assert items[2]["data"].pop("timestamp").endswith("+00:00")
    assert items[2] == {
        "label": "rtvi-ai",
        "type": "user-input",
        "data": {"text": "Hello", "input_type": "chat", "final": True, "msg_id": "abc"},
    }
    audio = [item for item in items if isinstance(item, AudioRawFrame)]
    assert {(len(frame.audio), frame.sample_rate, frame.num_channels, frame.pts) for frame in audio} == {
        (1920, 24000, 1, None)
    }
    assert [frame.name for frame in audio] == [f"OutputAudioRawFrame#{frame.id}" for frame in audio]


def test_a_spoken_turn_in_the_order_of_a_real_bot(talk: Talk) -> None:
    """Speech is announced, interrupts, is transcribed, ends, and is answered."""
    with EmbeddedBot(transcripts="Hello bot", replies="Yes.", hang_over=QUICK) as bot:
        client = talk(bot)
        client.say(silence(0.5) + tone(0.3) + silence(0.3))
        items = client.until("bot-stopped-speaking")

    heard = ["user-input", "user-transcription"] * 2
    started = ["user-started-speaking", "InterruptionFrame", "bot-interrupted"]
    assert names(items) == [*started, *heard, "user-stopped-speaking", *ANSWER]
    texts = [item["data"] for item in items if isinstance(item, dict) and item["type"] == "user-transcription"]
    assert [(data["text"], data["final"]) for data in texts] == [("Hello", False), ("Hello bot", True)]


def test_the_users_own_voice_comes_back_bit_exact(talk: Talk) -> None:
    """The answer to speech is what was said, at the rate at which it was said, padded to whole chunks of 40 ms."""
    with EmbeddedBot(hang_over=QUICK) as bot:
        client = talk(bot)
        client.say(silence(0.5) + tone(0.33) + silence(0.4))
        items = client.until("bot-stopped-speaking")

    said = silence(0.1) + tone(0.33) + silence(0.1)
    assert pcm_of(items) == said.ljust(-(-len(said) // 1280) * 1280, b"\0")
    assert {item.sample_rate for item in items if isinstance(item, AudioRawFrame)} == {RATE}


def test_who_stops_sending_has_spoken(talk: Talk) -> None:
    """A user whose audio ends in the middle, without any silence, is answered too."""
    with EmbeddedBot(hang_over=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3))
        items = client.until("bot-stopped-speaking")

    assert pcm_of(items)[: len(tone(0.3))] == tone(0.3)


def test_audio_inside_of_messages_is_heard(talk: Talk) -> None:
    """raw-audio and raw-audio-batch messages are as good as audio frames."""
    pcm = base64.b64encode(tone(0.3)).decode()
    quiet = base64.b64encode(silence(0.3)).decode()
    with EmbeddedBot(hang_over=QUICK) as bot:
        client = talk(bot)
        client.send("raw-audio", {"base64Audio": pcm, "sampleRate": RATE, "numChannels": 1})
        client.send("raw-audio-batch", {"base64AudioBatch": [quiet], "sampleRate": RATE, "numChannels": 1})
        items = client.until("bot-stopped-speaking")

    assert pcm_of(items)[: len(tone(0.3))] == tone(0.3)


def test_the_script_is_followed_and_begins_again(talk: Talk) -> None:
    """Transcripts and replies go on turn by turn, and from the first when they are used up."""
    with EmbeddedBot(transcripts=["A", "B"], replies=["1", "2", "3"], echo=False, hang_over=QUICK) as bot:
        client = talk(bot)
        turns = []
        for _ in range(4):
            client.say(tone(0.1) + silence(0.3))
            items = [item for item in client.until("bot-stopped-speaking") if isinstance(item, dict)]
            turns += [item["data"]["text"] for item in items if item["type"] in ("user-llm-text", "bot-transcription")]

    assert turns == ["A", "1", "B", "2", "A", "3", "B", "1"]


def test_without_a_script_it_tells_what_it_heard(talk: Talk) -> None:
    """The transcript then is the length of the speech, and the reply repeats it."""
    with EmbeddedBot(hang_over=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3) + silence(0.3))
        items = client.until("bot-transcription")

    assert items[-2]["data"]["text"] == " speech)"
    assert items[-1]["data"]["text"] == "You said: (0.4 s of speech)"


def test_replies_can_be_a_function(talk: Talk) -> None:
    """A function makes the reply from the user's words."""
    with EmbeddedBot(replies=str.upper) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "louder"})

        assert client.until("bot-transcription")[-1]["data"]["text"] == "LOUDER"


def test_audio_can_have_a_fixed_rate(talk: Talk) -> None:
    """`audio_out_sample_rate_hz` holds for echoes and for tones."""
    with EmbeddedBot(audio_out_sample_rate_hz=8000, replies="Yes.", hang_over=QUICK) as bot:
        client = talk(bot)
        client.say(tone(0.3) + silence(0.3))
        spoken = client.until("bot-stopped-speaking")
        client.send("send-text", {"content": "Hello"})
        typed = client.until("bot-stopped-speaking")

    frames = [item for item in spoken + typed if isinstance(item, AudioRawFrame)]
    assert {(frame.sample_rate, len(frame.audio)) for frame in frames} == {(8000, 640)}


def test_text_without_audio_response_is_answered_in_text(talk: Talk) -> None:
    """`audio_response: false` silences one turn; its text comes as output that is not spoken."""
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello", "options": {"audio_response": False}})
        items = client.until("bot-output")

    assert names(items)[-3:] == ["bot-transcription", "bot-llm-stopped", "bot-output"]
    assert items[-1]["data"]["will_be_spoken"] is False


def test_text_that_does_not_run_is_only_acknowledged(talk: Talk) -> None:
    """`run_immediately: false` interrupts nothing and answers nothing."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Hello", "options": {"run_immediately": False}})
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["user-input", "server-response"]


def test_speech_interrupts_speech(talk: Talk) -> None:
    """Who speaks while the bot speaks silences it: no audio of the old turn comes after the interruption."""
    with EmbeddedBot(replies=["A very long reply of many words " * 20, "Yes."], echo=False, hang_over=QUICK) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-started-speaking")
        client.say(tone(0.2) + silence(0.3))
        cut = client.until("bot-interrupted")
        rest = client.until("bot-stopped-speaking")
        answer = client.until("bot-stopped-speaking")

    assert names(cut)[-3:] == ["user-started-speaking", "InterruptionFrame", "bot-interrupted"]
    assert names(rest) == ["bot-stopped-speaking"]
    assert [
        item["data"]["text"] for item in answer if not isinstance(item, AudioRawFrame) and "bot-tr" in item["type"]
    ] == ["Yes."]


def test_text_interrupts_speech(talk: Talk) -> None:
    """send-text while the bot speaks silences it as well."""
    with EmbeddedBot(replies=["A very long reply of many words " * 20, "Yes."]) as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-started-speaking")
        client.send("send-text", {"content": "Stop"})

        assert names(client.until("bot-interrupted"))[-2:] == ["InterruptionFrame", "bot-interrupted"]
        assert names(client.until("user-input")) == ["bot-stopped-speaking", "user-input"]


def test_audio_is_not_faster_than_real_time(talk: Talk) -> None:
    """No chunk comes before its time: 40 ms for each but the two of the head start."""
    with EmbeddedBot(replies="One two three four.") as bot:
        client = talk(bot)
        client.send("send-text", {"content": "Talk"})
        client.until("bot-tts-started")
        began, arrivals = time.monotonic(), []
        while True:
            frame = client.receive()
            if isinstance(frame, AudioRawFrame):
                arrivals.append(time.monotonic() - began)
            elif "bot-stopped-speaking" in getattr(frame, "data", ""):
                break

    # The client's clock may start a little later than the bot's.
    late_start = 0.03
    assert len(arrivals) > 20
    assert [at for index, at in enumerate(arrivals) if at < (index - 1) * 0.04 - late_start] == []


def test_no_silence_is_sent_between_turns(talk: Talk) -> None:
    """A quiet bot sends nothing, however much silence it hears."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.say(silence(3))
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["server-response"]


@pytest.mark.parametrize(
    ("client_version", "warning", "version"),
    [
        ("2.2.0", None, "2.2.0"),
        ("2.0.0", None, "2.2.0"),
        ("1.4.0", None, "1.4.0"),
        ("0.3.0", "RTVI version 0.3.0 is not compatible with server protocol 2.2.0.", "2.2.0"),
        ("2.1", "Invalid client version format (2.1).", "2.2.0"),
        ("abc", "Invalid client version format (abc).", "2.2.0"),
        (None, "Client version unknown.", "2.2.0"),
    ],
)
def test_version_negotiation(talk: Talk, client_version: str | None, warning: str | None, version: str) -> None:
    """bot-ready has the id of client-ready; a version that does not fit is an error-response before it, no more."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send("client-ready", None if client_version is None else {"version": client_version}, id="abc")
        *warnings, ready = client.until("bot-ready")

    assert [(item["type"], item["id"], item["data"]["error"]) for item in warnings] == (
        [("error-response", "abc", f"{warning} Compatibility issues may occur.")] if warning else []
    )
    assert (ready["id"], ready["data"]["version"]) == ("abc", version)
    assert set(ready["data"]) == {"version", "about", "capabilities"}


def test_clients_of_protocol_1_get_words(talk: Talk) -> None:
    """After a client-ready of 1.x bot-output comes word by word."""
    with EmbeddedBot(replies="Yes sir.") as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "1.4.0"})
        client.send("send-text", {"content": "Hello"})
        items = [item for item in client.until("bot-stopped-speaking") if isinstance(item, dict)]

    outputs = [item["data"] for item in items if item["type"] == "bot-output"]
    assert [(data["text"], data["aggregated_by"]) for data in outputs] == [
        ("Yes sir.", "sentence"),
        ("Yes", "word"),
        ("sir.", "word"),
    ]


def test_metrics_come_before_bot_ready(talk: Talk) -> None:
    """With `metrics` the first message is not bot-ready, as with real bots."""
    with EmbeddedBot(metrics=True) as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "2.2.0"})

        assert names(client.until("bot-ready")) == ["metrics", "bot-ready"]


def test_a_bot_that_never_gets_ready(talk: Talk) -> None:
    """With `ready=False` client-ready is not answered, everything else is."""
    with EmbeddedBot(ready=False) as bot:
        client = talk(bot)
        client.send("client-ready", {"version": "2.2.0"})
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["server-response"]


def test_requests_are_answered_from_the_script(talk: Talk) -> None:
    """A value, a function's result, nothing at all, or the request's own data where the script has no answer."""
    script = {"time": "noon", "double": lambda data: data * 2, "void": lambda data: None}
    with EmbeddedBot(on_request=script) as bot:
        client = talk(bot)
        answers = []
        for number, (kind, data) in enumerate([("time", None), ("double", 21), ("void", 1), ("other", {"a": [1]})]):
            client.send("client-message", {"t": kind, "d": data}, id=f"request-{number}")
            answers.append(client.message("server-response"))

    assert [answer["id"] for answer in answers] == [f"request-{number}" for number in range(4)]
    assert [answer["data"] for answer in answers] == [
        {"t": "time", "d": "noon"},
        {"t": "double", "d": 42},
        {"t": "void"},
        {"t": "other", "d": {"a": [1]}},
    ]


def test_requests_are_refused_by_raising(talk: Talk) -> None:
    """The exception of a scripted answer becomes the error-response of that request."""

    def refuse(data: Any) -> None:
        raise LookupError("no such thing")

    with EmbeddedBot(on_request={"find": refuse}) as bot:
        client = talk(bot)
        client.send("client-message", {"t": "find"}, id="abc")
        answer = client.message("error-response")

    assert (answer["id"], answer["data"]) == ("abc", {"error": "no such thing"})


@pytest.mark.parametrize(
    ("type", "data", "error"),
    [
        ("no-such-type", {}, "Unsupported type no-such-type"),
        ("get-config", {}, "Unsupported type get-config"),
        ("send-text", {"text": "?"}, "Invalid message: 1 validation error\ncontent"),
        ("client-message", None, "Invalid message: 1 validation error\nt"),
        ("send-file", {"content": "look"}, "Invalid message: 1 validation error\nfile"),
        (
            "raw-audio",
            {"base64Audio": "abc", "sampleRate": 1, "numChannels": 1},
            "Exception processing message: Incorrect padding",
        ),
    ],
)
def test_bad_messages_get_an_error_response(talk: Talk, type: str, data: Any, error: str) -> None:
    """Unknown types and bad payloads are refused with the id of the message, and the session lives."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send(type, data, id="abc")
        answer = client.message("error-response")
        client.send("client-message", {"t": "fence"})
        client.message("server-response")

    assert answer["id"] == "abc"
    assert answer["data"]["error"].startswith(error)


@pytest.mark.parametrize(
    "message",
    [
        {"label": "rtvi-ai", "type": "send-text", "data": {}},
        {"label": "rtvi-ai", "type": "send-text", "id": 7},
        {"label": "rtvi-ai", "id": "a"},
        {"label": "rtvi-ai", "type": "send-text", "id": "a", "data": []},
    ],
)
def test_envelopes_that_are_wrong_get_an_error(talk: Talk, message: Any) -> None:
    """Without a proper id there is nothing to respond to: a general error that is not fatal."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_json(message)
        answer = client.message("error")

    assert answer["data"]["fatal"] is False
    assert answer["data"]["error"].startswith("Invalid RTVI transport message")


def test_what_is_not_for_it_is_ignored(talk: Talk) -> None:
    """Other labels, JSON that is no object, no JSON, empty and unknown frames, odd audio: no answer, no harm."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_json({"label": "other", "type": "client-message", "id": "1", "data": {"t": "x"}})
        client.send_json([1])
        client.send_frame(MessageFrame(data="no json"))
        client.send_frame(MessageFrame(data="[" * 100_000))
        client.send_frame(TextFrame(text="hello"))
        client.send_frame(AudioRawFrame(audio=b"\1", sample_rate=RATE))
        client.connection.send(b"")
        client.connection.send(b"\x8a\x01\x00")
        client.send("dtmf", {"buttons": ["1"]})
        client.send("client-message", {"t": "fence"})

        assert names(client.until("server-response")) == ["server-response"]


def test_a_transcription_frame_counts_as_heard(talk: Talk) -> None:
    """A client's own transcription comes back as what the user said."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_frame(TranscriptionFrame(text="Hello", user_id="me", timestamp="now"))
        items = client.until("user-transcription")

    assert [(item["type"], item["data"]["text"], item["data"]["final"]) for item in items] == [
        ("user-input", "Hello", True),
        ("user-transcription", "Hello", True),
    ]


def test_a_file_is_answered_without_user_input(talk: Talk) -> None:
    """send-file runs a turn that no user-input announces."""
    source = {"type": "bytes", "bytes": "aGVsbG8="}
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-file", {"content": "look", "file": {"format": "text/plain", "source": source}})

        assert names(client.until("bot-stopped-speaking")) == ["InterruptionFrame", "bot-interrupted", *ANSWER]


def test_audio_without_a_rate_is_an_error(talk: Talk) -> None:
    """A frame without a sample rate gets an error, and the session lives."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_frame(AudioRawFrame(audio=b"\1\2", sample_rate=0))

        assert client.message("error")["data"]["error"] == "Error processing frame: Sample rate should be over 0"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff", id="garbage"),
        pytest.param("text", id="text-message"),
        pytest.param(encode(AudioRawFrame(audio=b"\1\2", sample_rate=RATE, num_channels=0)), id="no-channels"),
        pytest.param(
            encode(MessageFrame(data='{"label": "rtvi-ai", "type": "disconnect-bot", "id": "1"}')), id="disconnect-bot"
        ),
    ],
)
def test_what_ends_the_session(talk: Talk, data: bytes | str) -> None:
    """Undecodable frames and disconnect-bot alike: closed with 1000 and no reason."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.connection.send(data)
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        end = bot.wait_for_session().wait_ended()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1000, "")
    assert (end.code, end.initiator) == (1000, "server")


def test_a_test_can_speak_for_the_bot(talk: Talk) -> None:
    """A session sends any message, frame or bytes, from any thread."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.send({"label": "rtvi-ai", "type": "server-message", "data": "hi"})
        session.send_frame(InterruptionFrame())
        session.send_frame(AudioRawFrame(audio=b"\1\2", sample_rate=RATE, id=9, name="mine"))
        session.send_raw(b"\xff")

        assert client.message("server-message")["data"] == "hi"
        assert client.receive() == InterruptionFrame(id=1, name="InterruptionFrame#1")
        assert client.receive() == AudioRawFrame(audio=b"\1\2", sample_rate=RATE, id=9, name="mine")
        assert client.connection.recv(LIMIT) == b"\xff"


def test_a_test_can_see_what_came() -> None:
    """A session keeps messages and audio, and knows the client's request."""
    headers = {"X-Test": "yes"}
    with EmbeddedBot() as bot, connect(f"{bot.ws_url}?token=x", additional_headers=headers) as connection:
        client = Client(connection)
        session = bot.wait_for_session()
        assert bot.sessions == [session]
        client.say(silence(0.1))
        client.say(silence(0.1) + b"\1\0")
        client.send("client-message", {"t": "a"})
        client.send("client-message", {"t": "b"})

        second = session.wait_for_message("client-message", LIMIT, where=lambda message: message["data"]["t"] == "b")

        assert second["data"]["t"] == "b"
        assert session.wait_for_message("client-message")["data"]["t"] == "a"
        assert [message["type"] for message in session.messages] == ["client-message"] * 2
        assert session.audio == silence(0.2) + b"\1\0"
        assert (session.path, session.headers["x-test"]) == ("/ws?token=x", "yes")
        assert session.ended is None
        client.connection.close(4001, "enough")
        end = session.wait_ended(LIMIT)
        assert (end.code, end.reason, end.initiator) == (4001, "enough", "client")
        assert bot.sessions == []


def test_waiting_has_a_limit(talk: Talk) -> None:
    """What does not come raises in time; what can no longer come raises at once."""
    with EmbeddedBot() as bot:
        with pytest.raises(RequestTimeoutError, match=r"no client connected within 0\.01 s"):
            bot.wait_for_session(0.01)
        client = talk(bot)
        session = bot.wait_for_session()
        with pytest.raises(RequestTimeoutError, match="'send-text'"):
            session.wait_for_message("send-text", 0.01)
        with pytest.raises(RequestTimeoutError, match="still lives"):
            session.wait_ended(0.01)
        client.connection.close()
        with pytest.raises(DisconnectedError, match="'send-text'") as caught:
            session.wait_for_message("send-text", LIMIT)
        assert (caught.value.code, caught.value.initiator) == (1000, "client")
        with pytest.raises(DisconnectedError):
            session.send({})


def test_a_test_can_close_with_any_code(talk: Talk) -> None:
    """`close` performs the closing handshake with the code and the reason it is given."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.close(4321, "because")
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4321, "because")
    assert session.wait_ended().initiator == "server"


def test_a_test_can_drop_the_line(talk: Talk) -> None:
    """`drop` ends the stream without a close frame; both ends see a broken line."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        session = bot.wait_for_session()
        session.drop()
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        assert caught.value.rcvd is None
        assert session.wait_ended().code is None


def test_a_handler_comes_first(talk: Talk) -> None:
    """`handler` sees every message; True means done, an exception is an error-response."""

    def handle(session: BotSession, message: dict[str, Any]) -> bool:
        if message["type"] == "action":
            session.send({"label": "rtvi-ai", "type": "action-response", "id": message["id"], "data": {"result": 1}})
            return True
        if message["type"] == "update-config":
            raise ValueError("not today")
        return False

    with EmbeddedBot(handler=handle) as bot:
        client = talk(bot)
        client.send("action", id="abc")
        assert client.message("action-response")["id"] == "abc"
        client.send("update-config", id="def")
        refused = client.message("error-response")
        assert (refused["id"], refused["data"]["error"]) == ("def", "Exception processing message: not today")
        client.send("client-message", {"t": "x"})
        client.message("server-response")


def test_a_hundred_clients_at_once(talk: Talk) -> None:
    """Every one of many clients has its own conversation, and all of them go on at the same time."""
    with EmbeddedBot(replies="Yes.", hang_over=QUICK) as bot:
        clients = [talk(bot) for _ in range(100)]
        for number, client in enumerate(clients):
            client.send("client-ready", {"version": "2.2.0"}, id=str(number))
        for number, client in enumerate(clients):
            assert client.message("bot-ready")["id"] == str(number)
        assert len(bot.sessions) == 100
        for client in clients:
            client.say(tone(0.2) + silence(0.25))
        for client in clients:
            assert pcm_of(client.until("bot-stopped-speaking"))[: len(tone(0.2))] == tone(0.2)


def test_stop_leaves_nothing_behind() -> None:
    """Whatever the clients are doing, after `stop()` there is no thread and no descriptor more than before."""
    before = open_descriptors()
    bot = EmbeddedBot(replies="A very long reply of many words " * 20)
    bot.start()
    http, ws = (int(url.split(":")[2].split("/")[0]) for url in (bot.base_url, bot.ws_url))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in (http, ws)]
        idle = stack.enter_context(connect(bot.ws_url, close_timeout=1))
        listening = Client(stack.enter_context(connect(bot.ws_url, close_timeout=1)))
        listening.send("send-text", {"content": "Talk"})
        listening.until("bot-started-speaking")
        assert threads_of_bots() != []

        bot.stop()

        assert threads_of_bots() == []
        for line in silent:
            line.settimeout(LIMIT)
            assert line.recv(1) == b""
        with pytest.raises(ConnectionClosed) as caught:
            idle.recv(LIMIT)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1012
        with pytest.raises(ConnectionClosed):
            listening.until("never")
    assert open_descriptors() == before
    bot.stop()


def test_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    """A client that has stopped reading is cut: `stop()` returns within its limit."""
    with EmbeddedBot() as bot, socket.create_connection(("127.0.0.1", int(bot.ws_url.split(":")[2][:-3]))) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(
            b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        session = bot.wait_for_session()
        blocked = threading.Event()

        def flood() -> None:
            with contextlib.suppress(DisconnectedError):
                while True:
                    session.send_raw(bytes(1_000_000))
                    blocked.set()

        thread = threading.Thread(target=flood)
        thread.start()
        assert blocked.wait(LIMIT)
        began = time.monotonic()
        bot.stop()
        took = time.monotonic() - began
        thread.join(LIMIT)

    assert not thread.is_alive()
    assert took < 5
    assert threads_of_bots() == []


def test_a_bot_can_be_started_again() -> None:
    """A stopped bot starts anew; a running one refuses."""
    bot = EmbeddedBot()
    for _ in range(2):
        with bot:
            with pytest.raises(RuntimeError, match="running"):
                bot.start()
            with connect(bot.ws_url) as connection:
                Client(connection).send("client-message", {"t": "x"})
                Client(connection).message("server-response")


def test_a_port_that_is_taken_leaves_nothing_behind() -> None:
    """`start()` that fails has ended what it had begun."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bot = EmbeddedBot(port=taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            bot.start()

    assert threads_of_bots() == []


def test_a_missing_library_is_named() -> None:
    """Importing needs no WebSocket library; starting says which extra brings it."""
    code = (
        "import sys; sys.modules['websockets'] = None\n"
        "from rtvi_sync.testing import EmbeddedBot\n"
        "from rtvi_sync.errors import MissingExtraError\n"
        "try: EmbeddedBot().start()\n"
        "except MissingExtraError as error: print(error, error.extra)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == f"{MissingExtraError('EmbeddedBot', 'testing')} testing"


# HTTP


def ask(url: str, method: str = "POST", body: bytes | None = b"{}", **headers: str) -> tuple[int, Any, dict[str, str]]:
    """Status, JSON body and headers of an HTTP request, whatever the status."""
    names_and_values = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=names_and_values)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=LIMIT) as response:
            status, data, found = response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            status, data, found = error.code, error.read(), error.headers
    return status, json.loads(data) if data else None, {name.lower(): value for name, value in found.items()}


def test_connect_endpoint() -> None:
    """POST /connect tells the address of the WebSocket, whatever the body, the query and the slash at its end."""
    with EmbeddedBot() as bot:
        answers = [ask(f"{bot.base_url}/connect", body=body)[:2] for body in (b'{"a": 1}', b"", b"no json")]
        answers += [ask(f"{bot.base_url}{path}")[:2] for path in ("/connect/", "/connect?a=1")]

        assert answers == [(200, {"ws_url": bot.ws_url})] * 5


def test_start_endpoint() -> None:
    """POST /start answers like the development runner: wsUrl, a new session id, and a token that is null."""
    with EmbeddedBot() as bot:
        status, first, _ = ask(f"{bot.base_url}/start", body=b'{"transport": "websocket", "body": {}}')
        second = ask(f"{bot.base_url}/start")[1]

    assert (status, first) == (200, {"wsUrl": bot.ws_url, "sessionId": first["sessionId"], "token": None})
    assert first["sessionId"] != second["sessionId"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/start", b'{"transport": "webrtc"}', 400),
        ("POST", "/start", b"[]", 500),
        ("GET", "/start", None, 405),
        ("GET", "/connect", None, 405),
        ("GET", "/", None, 404),
        ("POST", "/elsewhere", b"{}", 404),
    ],
)
def test_refused_requests(method: str, path: str, body: bytes | None, status: int) -> None:
    """What cannot be answered gets the status and the `detail` of a real server."""
    with EmbeddedBot() as bot:
        answer = ask(bot.base_url + path, method, body)

    assert (answer[0], list(answer[1])) == (status, ["detail"])


def test_pages_of_every_origin_may_ask() -> None:
    """A browser's preflight and its request get the CORS headers, for requests with credentials too."""
    with EmbeddedBot() as bot:
        preflight = ask(
            f"{bot.base_url}/connect",
            "OPTIONS",
            None,
            Origin="https://example.org",
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="content-type, x-key",
        )
        request = ask(f"{bot.base_url}/connect", Origin="https://example.org")

    assert (preflight[0], request[0]) == (200, 200)
    assert "POST" in preflight[2]["access-control-allow-methods"]
    assert preflight[2]["access-control-allow-headers"] == "content-type, x-key"
    for _, _, headers in (preflight, request):
        assert headers["access-control-allow-origin"] == "https://example.org"
        assert headers["access-control-allow-credentials"] == "true"
        assert headers["vary"] == "Origin"


def test_tls() -> None:
    """With a server context both addresses are secure; a client that stalls its handshake holds up nobody."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    with EmbeddedBot(ssl_context=server) as bot, contextlib.ExitStack() as stack:
        ports = [int(url.split(":")[2].split("/")[0]) for url in (bot.base_url, bot.ws_url)]
        stalled = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for port in ports]
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=client)
        )
        with opener.open(f"{bot.base_url}/connect", data=b"{}", timeout=LIMIT) as response:
            address = json.load(response)["ws_url"]
        with connect(address, ssl=client) as connection:
            Client(connection).send("client-ready", {"version": "2.2.0"})
            Client(connection).message("bot-ready")

        assert (bot.base_url[:8], address[:6]) == ("https://", "wss://")
        assert len(stalled) == 2
    assert threads_of_bots() == []
