"""The embedded bot's handling of each message and frame, valid and invalid."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot
from tests.support.wire import (
    AudioRawFrame,
    MessageFrame,
    TextFrame,
)

from .bot_client import ANSWER, FILE, RATE, Talk, names


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


def test_a_file_is_answered_without_user_input(talk: Talk) -> None:
    """send-file runs a turn without a user-input."""
    source = {"type": "bytes", "bytes": "aGVsbG8="}
    with EmbeddedBot(replies="Yes.") as bot:
        client = talk(bot)
        client.send("send-file", {"content": "look", "file": {"format": "text/plain", "source": source}})

        assert names(client.until("bot-stopped-speaking")) == ["InterruptionFrame", "bot-interrupted", *ANSWER]
