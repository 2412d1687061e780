"""The messenger: it sends what bots of its version send, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.messenger import Messenger

pytestmark = pytest.mark.inside


def messenger(version: str) -> tuple[Messenger, list[dict[str, Any]]]:
    """Return a messenger of a bot of that version, and the list of what it has sent."""
    sent: list[dict[str, Any]] = []
    return Messenger(BotVersion(version), sent.append), sent


@pytest.mark.parametrize(("version", "types"), [("2.2.0", ["bot-output"]), ("0.3.0", [])])
def test_a_message_that_bots_of_that_version_do_not_send(version: str, types: list[str]) -> None:
    """`bot-output` is of RTVI 1.1 and later: an older bot drops it."""
    it, sent = messenger(version)
    it.emit("bot-output", {"text": "a"})
    assert [message["type"] for message in sent] == types


def test_an_answer_has_the_id_of_its_message() -> None:
    """A refusal answers; an error does not."""
    it, sent = messenger("2.2.0")
    it.send_error_response({"type": "x", "id": "7"}, "no such thing")
    it.send_error("broken")
    assert [(message["type"], message["data"]["error"]) for message in sent] == [
        ("error-response", "no such thing"),
        ("error", "broken"),
    ]
    assert sent[0]["id"] == "7"
    assert sent[1].get("id") != "7"
    assert sent[1]["data"]["fatal"] is False
