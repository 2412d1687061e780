"""Payloads of client messages that are refused, and the texts of the errors."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.testing import EmbeddedBot

from .bot_client import FILE, Talk


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
