"""Clients in sessions with bots that are functions, or with embedded bots."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from rtvi_sync import MemoryTransport, RTVIClient, RTVIMessage, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from rtvi_sync.transports.base import Inbound
from rtvi_sync.transports.memory import ready_bot as ready_bot
from tests.support.slowness import GUARD


def memory_client(bot: Any = ready_bot, **options: Any) -> RTVIClient:
    """Return a client of a bot that is a function."""
    options.setdefault("connect_timeout", GUARD)
    return RTVIClient(transport=MemoryTransport(bot), **options)


def manager_of(client: RTVIClient) -> Any:
    """Return the life of a client: the only place in the tests that names the private attribute."""
    return client._life


def session_of(client: RTVIClient) -> Any:
    """Return the session of a client.

    Raises:
        RTVIError: it has none.
    """
    return manager_of(client).session()


def transport_of(client: RTVIClient) -> Any:
    """Return the transport that `client` was made with."""
    return manager_of(client).transport


def bundle_of(client: RTVIClient) -> Any:
    """Return the bundle that the transport of a client connects with."""
    return transport_of(client).auth_bundle


def silent_bot(transport: MemoryTransport, message: RTVIMessage) -> None:
    """Say nothing, ever."""


def deaf_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Inbound]:
    """Be ready, and answer nothing."""
    if message.type == "client-ready":
        yield from ready_bot(transport, message)


def acting_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[RTVIMessage]:
    """Yield a bot that returns the arguments of an action; "dead" is never answered, "nosuch" is refused."""
    if message.type == "client-ready":
        yield RTVIMessage("bot-ready", {"version": "0.3.0", "config": []}, message.id)
    elif message.type == "action":
        name = message.data["action"]
        if name == "nosuch":
            yield RTVIMessage("error-response", {"error": "no"}, message.id)
        elif name != "dead":
            arguments = {argument["name"]: argument["value"] for argument in message.data["arguments"]}
            result = [message.data["service"], name, arguments]
            yield RTVIMessage("action-response", {"result": result}, message.id)


def bot_says(client: RTVIClient, type_: str, data: Any = None, id: str | None = None) -> None:
    """Have the bot of a memory transport send a message."""
    transport_of(client).receive(RTVIMessage(type_, data, id))


def say(client: RTVIClient, *texts: Any) -> None:
    """Have the bot send a `server_message` for each of `texts`."""
    for text in texts:
        bot_says(client, "server-message", text)


def settle(client: RTVIClient) -> None:
    """Wait until everything that has arrived was delivered to all listeners."""
    done = threading.Event()
    client.once("metrics", done.set)
    bot_says(client, "metrics", {})
    assert done.wait(GUARD)


def websocket_client(bot: EmbeddedBot, **options: Any) -> RTVIClient:
    """Return a client of an embedded bot, over WebSocket by default, with a source and a sink that make no noise."""
    options = {
        "transport": WebSocketTransport(bot.ws_url),
        "mic": SilenceSource(),
        "speaker": NullSink(),
        "connect_timeout": GUARD,
        **options,
    }
    return RTVIClient(**options)


def server_message(text: Any) -> RTVIMessage:
    """Return a message that becomes a `server_message` event with the payload `text`."""
    return RTVIMessage("server-message", text, None)
