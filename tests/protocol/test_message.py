"""The message object."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs
import pytest

from rtvi_sync.messages import (
    RTVIMessage,
)


def test_fields_by_position() -> None:
    """The order of a message's fields is type, data, id, label."""
    message = RTVIMessage("client-message", {"t": "ping"}, "1")
    assert message == RTVIMessage(type="client-message", data={"t": "ping"}, id="1", label="rtvi-ai")


def test_a_new_message_gets_an_id_of_its_own() -> None:
    """Ids are 8 hex digits, and 1000 messages do not share one."""
    ids = {RTVIMessage("describe-actions").id for _ in range(1000)}
    assert all(re.fullmatch(r"[0-9a-f]{8}", text or "") for text in ids)
    assert len(ids) > 990  # a clash among 1000 of 2**32 is rare, but allowed


def test_to_dict_is_the_wire_document() -> None:
    """All four fields are in the document, and JSON can hold it."""
    document = RTVIMessage("client-message", {"t": "ping", "d": None}, "66a4a855").to_dict()
    assert document == {
        "label": "rtvi-ai",
        "type": "client-message",
        "id": "66a4a855",
        "data": {"t": "ping", "d": None},
    }
    assert json.loads(json.dumps(document)) == document


def test_to_dict_omits_what_is_none() -> None:
    """A message without id or data has no such keys; falsy data stays."""
    assert RTVIMessage("bot-llm-started", None, None).to_dict() == {"label": "rtvi-ai", "type": "bot-llm-started"}
    falsy: list[Any] = [{}, "", 0, False]
    assert [RTVIMessage("x", data, None).to_dict()["data"] for data in falsy] == falsy


def test_a_message_is_frozen() -> None:
    """A message cannot be changed once made."""
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        RTVIMessage("x").type = "y"  # type: ignore[misc]
