"""Messages of every kind go through envelope, table and payload and back, and nothing of them is lost."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from rtvi_sync.messages import Payload, RTVIMessage
from rtvi_sync.protocol import envelope
from rtvi_sync.protocol.dialects import INBOUND, OUTBOUND, MessageSpec, decode_payload, supports

from .wire import Example, examples

pytestmark = pytest.mark.inside

FROM_BOTS = examples("bot")
FROM_CLIENTS = examples("client")


def unknown_fields(payload: Any) -> list[Any]:
    """Return whatever is in `.extra`, of the payload or of a part of it."""
    if isinstance(payload, tuple):
        return [found for item in payload for found in unknown_fields(item)]
    if not isinstance(payload, Payload):
        return []
    values = attrs.asdict(payload, recurse=False)
    extra = values.pop("extra")
    return [*extra.items(), *(found for value in values.values() for found in unknown_fields(value))]


def knows(spec: MessageSpec, example: Example) -> bool:
    """Tell whether the versions of a row include that of the example's bot."""
    return (spec.since is None or example.version >= spec.since) and (
        spec.until is None or example.version < spec.until
    )


@pytest.mark.parametrize("example", FROM_BOTS, ids=str)
def test_what_bots_send(example: Example) -> None:
    """A bot's message is of a type that its version has, and every field of it has its place in a payload."""
    text = json.dumps(example.message)
    message = envelope.decode(text)
    assert json.loads(envelope.encode(message)) == example.message
    spec = INBOUND[message.type]
    assert knows(spec, example)
    payload = decode_payload(spec, message.data)
    assert unknown_fields(payload) == []
    assert spec.payload is None or isinstance(payload, spec.payload)


@pytest.mark.parametrize("example", FROM_CLIENTS, ids=str)
def test_what_bots_take(example: Example) -> None:
    """A message for a bot passes the version check for bots of its version, and its JSON is the documented one."""
    document = example.message
    message = RTVIMessage(document["type"], document["data"], document["id"])
    assert json.loads(envelope.encode(message)) == document
    assert envelope.decode(envelope.encode(message)) == message
    assert knows(OUTBOUND[message.type], example)
    assert supports(message.type, "{}.{}.0".format(*example.version))


def test_no_type_is_without_an_example() -> None:
    """Every row of the table has been tried with a message."""
    assert {example.type for example in FROM_BOTS} == set(INBOUND)
    assert {example.type for example in FROM_CLIENTS} == set(OUTBOUND)
