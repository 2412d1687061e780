"""The states and events of a session, from the first to the last."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from rtvi_sync import CloseInfo, MemoryTransport, RTVIClient, RTVIEvent, TransportOptions, TransportState
from rtvi_sync.media import NullSink
from tests.support.clients import memory_client, say, server_message, transport_of


def test_states_and_events_of_a_session() -> None:
    """The order of states and events is the documented one, from the first to the last."""
    client = memory_client(params={"endpoints": {"connect": None}})
    heard: list[str] = []
    client.on("transport_state_changed", lambda state: heard.append(f"state {state}"))
    for name in ("connected", "bot_connected", "bot_ready", "bot_disconnected", "disconnected"):
        client.on(name, functools.partial(heard.append, name))
    assert client.state == "disconnected"
    with client:
        assert client.state == "ready"
        assert client.connected
    assert heard == [
        "state initializing",
        "state initialized",
        "state connecting",
        "state connected",
        "connected",
        "bot_connected",
        "state ready",
        "bot_ready",
        "state disconnecting",
        "bot_disconnected",
        "state disconnected",
        "disconnected",
    ]
    assert not client.connected


def test_bot_ready_payload() -> None:
    """`bot_ready` carries the data that `connect()` returns."""
    client = memory_client()
    ready: list[Any] = []
    client.on("bot_ready", ready.append)
    result = client.connect()
    client.disconnect()
    assert ready == [result]
    assert result.version == "2.2.0"
    assert result.about.library == "memory"


@pytest.mark.parametrize(
    ("info", "initiator"),
    [
        (CloseInfo(code=1000, initiator="server"), "server"),
        (CloseInfo(code=1012, reason="restart", initiator="server"), "server"),
        (CloseInfo(initiator="network"), "network"),
    ],
)
def test_disconnected_tells_how(info: CloseInfo, initiator: str) -> None:
    """`disconnected` is the last event, with code, reason and initiator; a ready session that is lost ends in
    `disconnected`.
    """
    client = memory_client()
    heard: list[Any] = []
    client.on("disconnected", heard.append)
    client.on("server_message", heard.append)
    client.connect()
    say(client, 1, 2)
    transport_of(client).end(info)
    say(client, 3)
    client.disconnect()
    assert heard == [1, 2, info]
    assert client.state is TransportState.DISCONNECTED


def test_what_is_switched_while_the_transport_is_initialized() -> None:
    """The transport is told, though it did not know of its session yet."""
    told: list[tuple[str, bool]] = []

    class SlowTransport(MemoryTransport):
        def initialize(self, options: TransportOptions, on_message: Callable[[Any], None]) -> None:
            super().initialize(options, on_message)
            client.enable_mic(False)
            client.enable_cam(True)
            assert told == []

        def enable_mic(self, enable: bool) -> None:
            told.append(("mic", enable))

        def enable_cam(self, enable: bool) -> None:
            told.append(("cam", enable))

    client = RTVIClient(transport=SlowTransport(video=True), mic=False, cam=False, speaker=NullSink())
    with client:
        assert told == [("mic", False), ("cam", True)]


def test_nothing_follows_disconnected() -> None:
    """Messages that a transport delivers while it ends, or later, cause no event."""
    client = memory_client()
    transport = transport_of(client)
    heard: list[str] = []
    client.on("disconnected", lambda: heard.append("disconnected"))
    client.on("server_message", lambda: heard.append("message"))
    client.on("device_error", lambda: heard.append("device"))
    real = transport.disconnect

    def disconnect() -> None:
        transport.receive(server_message("while closing"))
        transport.options.on_event(RTVIEvent.DEVICE_ERROR, None)
        real()

    transport.disconnect = disconnect
    client.connect()
    options = transport.options
    client.disconnect()
    options.on_event(RTVIEvent.DEVICE_ERROR, None)
    options.on_closed(CloseInfo(initiator="network"))
    options.on_interruption()
    transport.receive(server_message("late"))
    transport.disconnect = real
    with client:
        transport.receive(server_message("new"))
    assert heard == ["device", "disconnected", "message", "disconnected"]


def test_version_is_told_to_the_bot() -> None:
    """`client-ready` says protocol version and who we are."""
    import rtvi_sync

    with memory_client() as client:
        ready = transport_of(client).sent[0]
    assert ready.type == "client-ready"
    assert ready.data["version"] == "2.2.0"
    assert ready.data["about"]["library"] == "rtvi_sync"
    assert ready.data["about"]["library_version"] == rtvi_sync.__version__
    assert sys.platform.startswith(ready.data["about"]["platform"])
