"""How a bot is reached from the command line, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rtvi_sync import BotReadyData, RTVIClient, WebSocketTransport

URL_HELP = (
    "ws:// or wss:// of its WebSocket; http:// or https:// of its start or connect endpoint "
    "(http://localhost:7860/start), or of the server that has one of them"
)


def client_for(
    url: str, *, token: str | None = None, headers: Mapping[str, str] | None = None, **options: Any
) -> RTVIClient:
    """Make a client of the bot at a URL, with what its server wants to see.

    Args:
        url: as `RTVIClient.for_url()` takes it.
        token: of the WebSocket; None: what the server answers.
        headers: of the request to the server, or, if the URL is that of a WebSocket, of its handshake.
        options: as `RTVIClient` takes them.
    """
    is_websocket = url.lower().startswith("ws")
    transport = WebSocketTransport(token=token, headers=headers if is_websocket else None)
    params = None if is_websocket else {"headers": headers}
    return RTVIClient.for_url(url, transport=transport, params=params, **options)


def greeting_of(ready: BotReadyData) -> str:
    """What a bot says about itself."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"
