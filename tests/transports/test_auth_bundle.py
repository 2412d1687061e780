"""The error for connection parameters without an address: their source, their purpose, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from rtvi_sync.transports.auth_bundle import missing_url

SOURCE = "http://host/connect answered with"


@pytest.mark.parametrize(
    ("bundle", "source", "text"),
    [
        (None, "", "There is nothing to connect to: SomeTransport has no ws_url"),
        ({}, "", "connect() was given no parameters, but SomeTransport needs ws_url"),
        (None, SOURCE, f"{SOURCE} no parameters, but SomeTransport needs ws_url"),
        ([1], SOURCE, f"{SOURCE} a list, but"),
        ({"ws_url": ""}, SOURCE, f"{SOURCE} an empty ws_url, but"),
        ({"wsUrl": 3}, SOURCE, f"{SOURCE} a wsUrl of type int, but"),
        ({"room": 1, "token": "secret"}, SOURCE, f"{SOURCE} 'room', 'token', but"),
        ({"room_url": "secret"}, SOURCE, "This is for a room of Daily, which needs another transport. Let the server"),
        (
            {"iceConfig": "secret"},
            SOURCE,
            "This is for a WebRTC connection, which needs another transport. Use SmallWebRTC",
        ),
        ({"sessionId": "secret"}, SOURCE, "This is for a WebRTC connection, which needs another transport"),
        ({"sessionId": "secret"}, SOURCE, "(up to Pipecat 1.12: its runner with -t eval)"),
        ({"dailyRoom": "secret", "sessionId": "secret"}, SOURCE, "This is for a room of Daily"),
    ],
)
def test_what_was_given_is_described(bundle: Any, source: str, text: str) -> None:
    """The names of the parameters are shown, and their values never."""
    error = missing_url(bundle, source, "SomeTransport")
    assert text in error
    assert "secret" not in error


def test_many_and_long_names_are_cut() -> None:
    """A server may answer anything; the error stays short and printable."""
    error = missing_url({f"{number}\n" + "x" * 1000: 1 for number in range(20)}, SOURCE, "SomeTransport")
    assert "and 12 others" in error
    assert "\n" not in error
    assert len(error) < 800
