"""Run a rule-based bot on this machine, for an application or a client to talk to.

It is the embedded bot of `rtvi_sync.testing`: no key, no model, no network. It first prints its URL, then the URL of
its WebSocket, which also takes telephone calls. If no --reply fits, it answers "You said: ...". It detects speech but
doesn't understand it, so it answers spoken words with their duration. Ctrl-C (status 130) or SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import re

from rtvi_sync.media.pcm import is_rate
from rtvi_sync.protocol.dialects import parse_version
from rtvi_sync.testing import EmbeddedBot

from .arguments import add_json_option, port, words
from .lifetime import serve

_PORT = 7860  # the port of Pipecat's development runner


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--port", type=port, default=_PORT, help="port for HTTP; 0: any free port (%(default)s)")
    parser.add_argument("--host", type=words, default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--version", type=_version, metavar="V", help="RTVI version of the bot, such as 0.3.0 (the newest)"
    )
    parser.add_argument(
        "--reply",
        type=_reply,
        action="append",
        default=[],
        metavar="PATTERN=TEXT",
        help="answer to words that contain the pattern (a regular expression without =); may be given several times, "
        "and the first match applies; an empty pattern matches everything",
    )
    parser.add_argument("--greeting", type=words, metavar="TEXT", help="first words of the bot")
    parser.add_argument(
        "--wav-rate", type=_rate, metavar="HZ", help="sample rate of its audio (the rate of the user's)"
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the bot until the process is told to end.

    Raises:
        RTVIError, OSError: It cannot listen.
        KeyboardInterrupt, SystemExit: The process was told to end.
    """
    version = {} if arguments.version is None else {"version": arguments.version}
    bot = EmbeddedBot(
        host=arguments.host,
        port=arguments.port,
        replies=dict(arguments.reply),
        greeting=arguments.greeting,
        audio_out_sample_rate_hz=arguments.wav_rate,
        **version,
    )
    serve(bot, as_json=arguments.json)
    return 0


def _reply(text: str) -> tuple[str, str]:
    pattern, equals, answer = text.partition("=")
    if not (equals and answer):
        raise argparse.ArgumentTypeError(f"{text!r} is not PATTERN=TEXT, such as 'time=It is noon.'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern, answer


def _version(text: str) -> str:
    if parse_version(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a version, such as 0.3.0")
    return text


def _rate(text: str) -> int:
    rate_hz = int(text) if text.isdecimal() else 0
    if not is_rate(rate_hz):
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate in Hz, such as 24000")
    return rate_hz
