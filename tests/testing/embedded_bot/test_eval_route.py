"""The eval route of the embedded bot, by a client of raw text messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rtvi_sync.testing import EmbeddedBot, Reply
from tests.support.slowness import GUARD
from tests.support.wavs import silence, tone

from .bot_client import QUICK


class EvalClient:
    """A client that sends and receives JSON."""

    def __init__(self, connection: ClientConnection, **flags: bool) -> None:
        self.connection = connection
        self.control("eval-connect", flags)

    def send(self, type: str, data: Any = None, id: str = "id-1") -> None:
        self.connection.send(json.dumps({"label": "rtvi-ai", "type": type, "id": id, "data": data}))

    def control(self, kind: str, data: Any) -> None:
        self.send("client-message", {"t": kind, "d": data}, kind)

    def say(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), 640):
            audio = base64.b64encode(pcm[start : start + 640]).decode()
            self.send("raw-audio", {"base64Audio": audio, "sampleRate": 16000, "numChannels": 1})

    def until(self, type: str) -> list[Any]:
        """Return everything up to the first message of a type."""
        received: list[Any] = []
        while not received or received[-1]["type"] != type:
            received.append(json.loads(self.connection.recv(GUARD)))
        return received


@contextmanager
def client_of(bot: EmbeddedBot, **flags: bool) -> Iterator[EvalClient]:
    with connect(bot.ws_url, proxy=None) as connection:
        yield EvalClient(connection, **flags)


def audio_in(received: list[Any]) -> list[Any]:
    return [message["data"] for message in received if message["type"] == "eval-bot-audio"]


def test_a_spoken_turn() -> None:
    """The user's audio is heard, and the bot's voice arrives in messages on request; no interruption frame is sent."""
    with EmbeddedBot(hangover=QUICK, metrics=True) as bot, client_of(bot, capture_bot_audio=True) as client:
        session = bot.wait_for_session()
        client.send("client-ready", {"version": "2.2.0"})
        assert [message["type"] for message in client.until("bot-ready")] == ["metrics", "bot-ready"]
        client.say(tone(0.5) + silence(1.0))
        received = client.until("bot-stopped-speaking")
        assert session.eval_route is not None
        assert session.eval_route.flags == {"capture_bot_audio": True}
        assert session.audio.startswith(tone(0.5))
        assert "raw-audio" not in {message["type"] for message in session.messages}
    audio = audio_in(received)
    assert {data["sampleRate"] for data in audio} == {16000}
    assert sum(len(base64.b64decode(data["audio"])) for data in audio) >= 2 * 16000 * 0.4


@pytest.mark.parametrize("flags", [{}, {"skip_tts": True, "capture_bot_audio": True}])
def test_a_silent_bot(flags: dict[str, bool]) -> None:
    """Without the flag no audio arrives, and with `skip_tts` the bot does not speak at all."""
    with EmbeddedBot(replies="Hello.") as bot, client_of(bot, **flags) as client:
        client.send("client-ready", {"version": "2.2.0"})
        client.send("send-text", {"content": "hi"})
        received = client.until("bot-llm-stopped" if flags else "bot-stopped-speaking")
        client.send("client-message", {"t": "x"})
        received += client.until("server-response")
    assert audio_in(received) == []
    assert ("bot-started-speaking" in {message["type"] for message in received}) == (not flags)


def test_controls() -> None:
    """The context is replaced, controls without effect are kept, no control is answered, and a cancelled bot leaves."""
    with EmbeddedBot() as bot, client_of(bot) as client:
        session = bot.wait_for_session()
        client.control("eval-context", {"messages": [{"role": "user", "content": "hi"}]})
        client.control("eval-configure", {"llm_markers": True})
        client.control("eval-image", {"image": ""})
        client.send("client-message", {"t": "x"})
        (answer,) = client.until("server-response")
        assert answer["data"] == {"t": "x"}
        assert session.context == [{"role": "user", "content": "hi"}]
        assert [message["data"]["t"] for message in session.messages] == [
            *("eval-context", "eval-configure", "eval-image", "x")
        ]
        client.control("eval-cancel", {})
        with pytest.raises(ConnectionClosed) as closed:
            client.connection.recv(GUARD)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_invalid_audio() -> None:
    """Audio that is none is refused as an invalid message."""
    with EmbeddedBot() as bot, client_of(bot) as client:
        client.send("raw-audio", {"base64Audio": 5})
        assert client.until("error-response")[-1]["id"] == "id-1"


def test_another_first_message() -> None:
    """A text that is not `eval-connect` ends the session of a protobuf bot."""
    with EmbeddedBot() as bot, connect(bot.ws_url, proxy=None) as connection:
        connection.send('{"label": "rtvi-ai", "type": "client-ready", "id": "1"}')
        with pytest.raises(ConnectionClosed):
            connection.recv(GUARD)


def test_the_level_of_reports() -> None:
    """The client's level replaces the bot's: the level of the function, else the one for all others, else none."""
    reply = Reply("Done.", call=("f", {"x": 1}), result=2, report_level="arguments")
    with EmbeddedBot(replies=reply) as bot, client_of(bot) as client:
        client.send("client-ready", {"version": "2.2.0"})
        shown = []
        for levels in ({}, {"*": "name"}, {"g": "full"}, {"*": "none", "f": "full"}, {"f": "everything"}):
            if levels:
                client.control("eval-configure", {"function_call_report_level": levels})
            client.send("send-text", {"content": "hi"})
            stopped = "llm-function-call-stopped"
            reports = {each["type"]: each["data"] for each in client.until(stopped) if "llm-function" in each["type"]}
            started, running = reports["llm-function-call-started"], reports["llm-function-call-in-progress"]
            shown.append((started.get("function_name"), running.get("arguments"), reports[stopped].get("result")))
            client.until("bot-stopped-speaking")
    nothing = (None, None, None)
    assert shown == [("f", {"x": 1}, None), ("f", None, None), nothing, ("f", {"x": 1}, 2), nothing]
