"""Run the bot of a recording: it sends the recorded messages, at the same times after the client's messages.

It first prints its URL, then the URL of its WebSocket. The client must send the same messages as in the recording.
Differences are listed at the end, and the replay continues. Ctrl-C (status 130) or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from rtvi_sync.protocol.text import one_line
from rtvi_sync.testing import Mismatch, ReplayBot

from .arguments import add_json_option, port, wrong_usage
from .lifetime import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="either file of the recording")
    parser.add_argument("--port", type=port, default=0, help="port for HTTP (any free port)")
    parser.add_argument(
        "--pace",
        choices=("recorded", "fast"),
        default="recorded",
        help="pace of the replay: as recorded (the default), or at once",
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the bot until the process is told to end.

    Raises:
        RTVIError, OSError: It cannot listen.
        KeyboardInterrupt, SystemExit: The process was told to end.
    """
    try:
        bot = ReplayBot(arguments.file, pace=arguments.pace, port=arguments.port)
    except (OSError, ValueError) as error:
        return wrong_usage("replay", error)
    try:
        serve(bot, as_json=arguments.json)
    finally:
        for mismatch in bot.mismatches:
            print(_described(mismatch), file=sys.stderr)
    return 0


def _described(mismatch: Mismatch) -> str:
    expected = "the user's voice" if mismatch.expected is None else _message(mismatch.expected)
    received = "nothing in time" if mismatch.received is None else _message(mismatch.received)
    return f"at {mismatch.t:.1f} s the recording has {expected}; the client sent {received}"


def _message(message: dict[str, Any]) -> str:
    data = json.dumps(message.get("data"), ensure_ascii=False)
    return one_line(f"{message.get('type')} {data}", 200)
