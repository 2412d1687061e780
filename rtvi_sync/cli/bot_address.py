"""How a command reaches a bot, and how it describes that bot."""

from __future__ import annotations

from rtvi_sync import BotReadyData

URL_HELP = (
    "ws:// or wss:// of its WebSocket; http:// or https:// of its start or connect endpoint "
    "(http://localhost:7860/start), or of the server that has one of them"
)


def describe_bot(ready: BotReadyData) -> str:
    """Return one line with the bot's library and RTVI version, as its `bot-ready` states them."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"
