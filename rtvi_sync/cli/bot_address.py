"""How a command reaches a bot, and how it describes that bot."""

from __future__ import annotations

import argparse
import os
from typing import Any

from rtvi_sync import BotReadyData

from .arguments import header, limit

_TOKEN_VARIABLE = "RTVI_TOKEN"  # noqa: S105 - a name

URL_HELP = (
    "ws:// or wss:// of its WebSocket; http:// or https:// of its start or connect endpoint "
    "(http://localhost:7860/start), or of the server that has one of them"
)


def add_connect_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that connects."""
    parser.add_argument(
        "--token",
        default=os.environ.get(_TOKEN_VARIABLE),
        help=f"for the bot's WebSocket. Better in the environment, as {_TOKEN_VARIABLE}: other users of this machine "
        "can read command lines",
    )
    parser.add_argument(
        "--header",
        type=header,
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="for the connect endpoint, such as 'Authorization: Bearer ...'; may be given several times",
    )
    parser.add_argument(
        "--timeout",
        type=limit,
        default=15.0,
        metavar="S",
        help="fail if the bot is not ready after S seconds (%(default)g)",
    )


def connect_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what `add_connect_options()` has read, as options of `RTVIClient.for_url()`."""
    return {
        "token": arguments.token,
        "headers": dict(arguments.header),
        "connect_timeout": arguments.timeout,
    }


def describe_bot(ready: BotReadyData) -> str:
    """Return one line with the bot's library and RTVI version, as its `bot-ready` states them."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"
