"""How a command reaches a bot, and how it describes that bot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtvi_sync import BotReadyData, RTVIClient, WebSocketTransport

URL_HELP = (
    "ws:// or wss:// of its WebSocket; http:// or https:// of its start or connect endpoint "
    "(http://localhost:7860/start), or of the server that has one of them"
)


def create_client(
    url: str, *, token: str | None = None, headers: Mapping[str, str] | None = None, **options: Any
) -> RTVIClient:
    """Make a client for the bot at a URL, with the credentials that its server requires.

    Args:
        url: as `RTVIClient.for_url()` takes it.
        token: for the WebSocket; None: the token in the server's response.
        headers: for the request to the server, or, if the URL is that of a WebSocket, for its handshake.
        options: as `RTVIClient` takes them.
    """
    is_websocket = url.lower().startswith("ws")
    transport = WebSocketTransport(token=token, headers=headers if is_websocket else None)
    params = None if is_websocket else {"headers": headers}
    return RTVIClient.for_url(url, transport=transport, params=params, **options)


def describe_bot(ready: BotReadyData) -> str:
    """Return one line with the bot's library and RTVI version, as its `bot-ready` states them."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"
