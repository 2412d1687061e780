"""The embedded bot's handling of each message and frame, valid and invalid."""

from __future__ import annotations

from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from rtvi_sync.protocol.frames import (
    AudioRawFrame,
    MessageFrame,
    TextFrame,
    TranscriptionFrame,
    encode,
)
from rtvi_sync.testing import EmbeddedBot

from .bot_client import ANSWER, RATE, Talk, names, outline


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
    """The answer is a value, a function's result, nothing, or the request's own data if the script has none."""
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
    """Unknown types and bad payloads are refused with the id of the message, and the session stays open."""
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
    """A message without a valid id gets a general error that is not fatal."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_json(message)
        answer = client.message("error")

    assert answer["data"]["fatal"] is False
    assert answer["data"]["error"].startswith("Invalid RTVI transport message")


def test_foreign_data_is_ignored(talk: Talk) -> None:
    """Other labels, JSON that is no object, no JSON, empty and unknown frames, odd audio are ignored."""
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


FILE = {"content": "look", "file": {"format": "text/plain", "source": {"type": "bytes", "bytes": "aGVsbG8="}}}
URL = {"content": "look", "file": {"format": "text/plain", "name": "a", "source": {"type": "url", "url": "https://x"}}}


@pytest.mark.parametrize(
    ("type", "data", "version"),
    [
        ("dtmf", {"button": "1"}, "2.0.0"),
        ("dtmf", {"buttons": ["1", "#", "*"]}, "2.1.0"),
        ("ui-event", {"event": "click", "payload": {"x": 1}}, "1.3.0"),
        ("ui-event", {"event": "click"}, "2.2.0"),
        ("ui-snapshot", {"tree": {"root": {"ref": "e1"}}}, "2.2.0"),
        ("ui-cancel-task", {"task_id": "job-1"}, "1.3.0"),
        ("ui-cancel-job-group", {"job_id": "job-1", "reason": "user"}, "2.2.0"),
        (
            "llm-function-call-result",
            {"function_name": "f", "tool_call_id": "1", "arguments": {}, "result": ""},
            "0.3.0",
        ),
        ("send-file", FILE | {"options": {"run_immediately": False}}, "2.2.0"),
        ("send-file", URL | {"options": {"run_immediately": False}}, "2.2.0"),
        ("append-to-context", {"role": "user", "content": ["any", "JSON"]}, "1.0.0"),
    ],
)
def test_messages_that_are_taken(talk: Talk, type: str, data: Any, version: str) -> None:
    """A message in the form of its version is accepted, and kept for the test."""
    with EmbeddedBot(version=version, quirks=True) as bot:
        client = talk(bot)
        client.send(type, data, id="abc")
        client.send("no-such-type", id="fence")

        assert [item["id"] for item in client.until_id("fence")] == ["fence"]
        assert bot.wait_for_session().wait_for_message(type)["data"] == data


@pytest.mark.parametrize(
    ("type", "data", "version", "name"),
    [
        ("dtmf", {"buttons": ["1"]}, "2.0.0", "button"),
        ("dtmf", {"button": "12"}, "2.0.0", "button"),
        ("dtmf", {"button": "1"}, "2.1.0", "buttons"),
        ("dtmf", {"buttons": []}, "2.2.0", "buttons"),
        ("dtmf", {"buttons": ["1", "x"]}, "2.2.0", "buttons"),
        ("dtmf", {"buttons": [1]}, "2.2.0", "buttons"),
        ("dtmf", None, "2.2.0", "buttons"),
        ("ui-event", {"payload": 1}, "2.2.0", "event"),
        ("ui-snapshot", {"tree": []}, "2.2.0", "tree"),
        ("ui-cancel-task", {"job_id": "1"}, "1.3.0", "task_id"),
        ("ui-cancel-job-group", {"reason": "1"}, "2.2.0", "job_id"),
        ("send-file", {"content": "x", "file": {"source": {}}}, "2.2.0", "format"),
        ("send-file", {"content": "x", "file": {"format": "x", "source": {"type": "x"}}}, "2.2.0", "file.source.type"),
        ("send-file", {"content": "x", "file": {"format": "x", "source": {"type": "url"}}}, "2.2.0", "url"),
        ("send-file", {"file": FILE["file"]}, "2.2.0", "content"),
        ("send-text", {"content": "x", "options": ["run_immediately"]}, "2.2.0", "options"),
        ("append-to-context", {"role": "user"}, "1.0.0", "content"),
        ("append-to-context", {"role": "user", "content": "x", "run_immediately": 1}, "1.0.0", "run_immediately"),
        ("raw-audio", {"base64Audio": "", "sampleRate": True, "numChannels": 1}, "2.2.0", "sampleRate"),
    ],
)
def test_messages_that_are_refused(talk: Talk, type: str, data: Any, version: str, name: str) -> None:
    """A message in another form is invalid, and the answer names the field."""
    with EmbeddedBot(version=version) as bot:
        answer = talk(bot).ask(type, data)

    assert answer["type"] == "error-response"
    assert answer["data"]["error"].startswith(f"Invalid message: 1 validation error\n{name}\n")


def test_append_to_context(talk: Talk) -> None:
    """Bots of 1.x add messages to their context, answer with a result, and run if requested."""
    with EmbeddedBot(version="1.0.0", replies="Yes.") as bot:
        client = talk(bot)
        silent = client.ask("append-to-context", {"role": "system", "content": "Be brief."})
        client.send("append-to-context", {"role": "user", "content": "Hello", "run_immediately": True}, id="abc")
        items = client.until("bot-llm-stopped")
        context = bot.wait_for_session().context

    assert (silent["type"], list(silent["data"])) == ("append-to-context-result", ["result"])
    assert outline(items)[:3] == ["append-to-context-result", "user-llm-text Hello", "bot-llm-started"]
    assert items[0]["id"] == "abc"
    assert context == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_a_transcription_frame_counts_as_heard(talk: Talk) -> None:
    """A client's own transcription is returned as the user's transcript."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.send_frame(TranscriptionFrame(text="Hello", user_id="me", timestamp="now"))
        items = client.until("user-transcription")

    assert [(item["type"], item["data"]["text"], item["data"]["final"]) for item in items] == [
        ("user-input", "Hello", True),
        ("user-transcription", "Hello", True),
    ]


def test_a_file_is_answered_without_user_input(talk: Talk) -> None:
    """send-file runs a turn without a user-input."""
    source = {"type": "bytes", "bytes": "aGVsbG8="}
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-file", {"content": "look", "file": {"format": "text/plain", "source": source}})

        assert names(client.until("bot-stopped-speaking")) == ["InterruptionFrame", "bot-interrupted", *ANSWER]


def test_audio_without_a_rate_is_an_error(talk: Talk) -> None:
    """A frame without a sample rate gets an error, and the session stays open."""
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
    """Undecodable frames and disconnect-bot close the session with 1000 and no reason."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.connection.send(data)
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        end = bot.wait_for_session().wait_ended()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1000, "")
    assert (end.code, end.initiator) == (1000, "server")
