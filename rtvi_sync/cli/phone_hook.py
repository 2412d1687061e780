"""Print a hook that redirects a bot's requests to telephone providers to a stub.

A Pipecat bot hangs up by a request to Twilio, Telnyx or Plivo. Save this text as sitecustomize.py in a directory of
PYTHONPATH, and the bot sends those requests to URL instead: the URL of ProviderAPI in rtvi_sync.testing.

  rtvi-sync phone-hook http://127.0.0.1:9000 > hook/sitecustomize.py
  PYTHONPATH=hook python bot.py -t twilio
"""

from __future__ import annotations

import argparse

from rtvi_sync.net.urls import parse_url, url_fault
from rtvi_sync.testing.provider_api import hook


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("url", type=_server, metavar="URL", help="URL of the stub, http://host:port")


def run(arguments: argparse.Namespace) -> int:
    """Print the hook."""
    print(hook(arguments.url), end="")
    return 0


def _server(text: str) -> str:
    parsed = parse_url(text, "http")
    if parsed is None:
        raise argparse.ArgumentTypeError(url_fault(text, "http"))
    if parsed.path.strip("/") or parsed.query or parsed.username is not None:
        raise argparse.ArgumentTypeError("only http://host:port is used")
    return f"http://{parsed.netloc}"
