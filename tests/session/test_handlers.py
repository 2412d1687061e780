"""How handlers are called."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import RTVIMessage
from rtvi_sync.protocol import envelope
from rtvi_sync.session.event_bus import SpecialHandler, function_of, message_of, takes_payload

pytestmark = pytest.mark.inside


def test_a_message_is_taken_as_it_is_or_decoded() -> None:
    """message_of() returns a message as it is, and decodes a text."""
    message = RTVIMessage("metrics", {}, "1")
    assert message_of(message) is message
    assert message_of(envelope.encode(message)).type == "metrics"


def test_what_each_takes() -> None:
    """A handler of the package gets the payload, no argument, or the messages of its types."""
    heard: list[Any] = []
    SpecialHandler(heard.append, takes_payload=True, once=False).call("x", None)
    SpecialHandler(lambda: heard.append("nothing"), takes_payload=False, once=True).call("x", None)
    helper = SpecialHandler(heard.append, takes_payload=False, once=False, messages=frozenset({"metrics"}))
    message = RTVIMessage("metrics", {}, "1")
    for cause in (message, RTVIMessage("error", {}, "2"), None):
        helper.call("x", cause)
    assert heard == ["x", "nothing", message]


def test_functions() -> None:
    """function_of() returns the application's function, plain or wrapped."""
    assert function_of(print) is print
    assert function_of(SpecialHandler(print, takes_payload=True, once=True)) is print


def test_payloads() -> None:
    """takes_payload() distinguishes functions by their parameters, and refuses more than one."""
    assert takes_payload(lambda data: None)
    assert not takes_payload(lambda: None)
    with pytest.raises(TypeError, match="more arguments"):
        takes_payload(lambda a, b: None)
