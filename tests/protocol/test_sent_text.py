"""The text in messages to the bot that reaches its language model."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import RTVIMessage
from rtvi_sync.protocol.sent_text import SentText, sent_text

pytestmark = pytest.mark.inside


def action(**values: Any) -> dict[str, Any]:
    arguments = [{"name": name, "value": value} for name, value in values.items()]
    return {"service": "llm", "action": "append_to_messages", "arguments": arguments}


@pytest.mark.parametrize(
    ("type_", "data", "said"),
    [
        ("send-text", {"content": "Hi"}, SentText("Hi", runs=True)),
        ("send-text", {"content": "Hi", "options": {"run_immediately": False}}, SentText("Hi", runs=False)),
        ("send-text", {"content": "Hi", "options": {"audio_response": False}}, SentText("Hi", True, aloud=False)),
        ("send-file", {"content": "", "file": {}}, SentText("", runs=True)),
        ("append-to-context", {"role": "user", "content": "Hi"}, SentText("Hi", runs=False)),
        (
            "append-to-context",
            {"content": [{"type": "text", "text": "Hi"}, {"type": "image"}], "run_immediately": True},
            SentText("Hi", runs=True),
        ),
        (
            "action",
            action(messages=[{"role": "user", "content": "Hi"}], run_immediately=True),
            SentText("Hi", runs=True),
        ),
        ("action", action(messages="Hi"), SentText("", runs=False)),
        ("action", {"action": "interrupt"}, None),
        ("client-message", {"t": "x"}, None),
        ("send-text", None, SentText("", runs=True)),
    ],
)
def test_what_is_said(type_: str, data: Any, said: SentText | None) -> None:
    """sent_text() returns a message's text, whether it runs the model, and whether the answer is spoken."""
    assert sent_text(RTVIMessage(type_, data)) == said
