"""Let a coding agent test a bot: a Model Context Protocol server on stdin and stdout.

An agent starts it, and calls its tools: connect, ask, say_audio, listen, barge_in, expect, last_turn and hang_up. The
server and its session end when stdin ends. Needs the extra `mcp`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rtvi_sync import MissingExtraError, RTVIError

from .agent_tools import AgentTools
from .allowed_urls import AllowedURLs
from .arguments import add_connect_options, connect_options, wrong_usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--allow-url",
        type=_prefix,
        action="append",
        default=[],
        metavar="URL",
        help="URL prefix that the agent may connect to, such as https://staging.example.com or "
        "ws://10.0.0.7:7860/ws; may be given several times. By default only this machine",
    )
    parser.add_argument("--record", type=Path, metavar="DIR", help="keep a recording of each session in this folder")
    add_connect_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until the agent closes stdin.

    Raises:
        MissingExtraError: The package mcp is not installed.
        KeyboardInterrupt, SystemExit: The process was told to end.
    """
    try:
        from .agent_server import serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("rtvi-sync mcp", "mcp") from error
    try:
        folder = None if arguments.record is None else _writable_folder(arguments.record)
    except (OSError, RTVIError) as error:
        return wrong_usage("mcp", error)
    if sys.stdin is not None and sys.stdin.isatty():
        print("rtvi-sync mcp waits for a coding agent, which starts it by itself. Ctrl-C ends it.", file=sys.stderr)
    serve(AgentTools(AllowedURLs.of(*arguments.allow_url), folder, connect_options(arguments)))
    return 0


def _prefix(text: str) -> str:
    try:
        AllowedURLs.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _writable_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise RTVIError(f"Cannot write into {path}: pass --record a folder that you may write to")
    return path.absolute()
