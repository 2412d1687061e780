"""The base of the client's interface: timeouts of calls, and answers of the bot."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync import DisconnectedError, ProtocolError, RequestTimeoutError, RTVIMessage
from rtvi_sync.client.base import DEFAULT_TIMEOUT, TIMEOUT, payload_of
from tests.support.clients import deaf_bot, memory_client
from tests.support.threads import InThread

pytestmark = pytest.mark.inside


def test_the_default_timeout_is_the_clients() -> None:
    """A call without a timeout has the client's `request_timeout`; None is no limit, and 0 is none that passes."""
    with memory_client(deaf_bot, request_timeout=0.05) as client:
        with pytest.raises(RequestTimeoutError, match=r"within 0\.05 s"):
            client.send_client_request("x")
        with pytest.raises(RequestTimeoutError, match="within 0 s"):
            client.send_client_request("x", timeout=0)
        without = InThread(lambda: client.send_client_request("x", timeout=None))
        assert without.goes_on(0.2)
    assert isinstance(without.error(), DisconnectedError)
    assert repr(DEFAULT_TIMEOUT) == "request_timeout"


@pytest.mark.parametrize(
    ("timeout", "error"), [("5", TypeError), (True, TypeError), (-1, ValueError), (float("nan"), ValueError)]
)
def test_a_timeout_that_is_none(timeout: Any, error: type[Exception]) -> None:
    """The error lists the values that a timeout may have."""
    with pytest.raises(error, match="timeout must be a number of seconds from 0 on or None"):
        TIMEOUT.check(timeout=timeout)


def test_the_payload_of_an_answer() -> None:
    """An answer is decoded by its type."""
    config = [{"service": "tts", "options": []}]
    assert payload_of(RTVIMessage("config", {"config": config}, "1")).config[0].service == "tts"


def test_an_answer_of_another_shape() -> None:
    """The error blames the bot, and says where to look."""
    with pytest.raises(ProtocolError, match=r"The bot's answer .*Check the code of the bot that sends it"):
        payload_of(RTVIMessage("config", {"config": 3}, "1"))
