"""A kiosk: there is a session whenever there is a bot, until Ctrl-C; what both say is printed.

    python3 run.py sample kiosk --url http://localhost:7860

Without a URL it connects to the embedded bot, for some seconds.
"""

import argparse
import contextlib
import sys

from rtvi_sync import ReconnectPolicy, RequestTimeoutError, RTVIClient
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


def serve(url: str, seconds: float | None) -> None:
    """Keep a session for `seconds`, or until Ctrl-C, whatever happens to the bot and the network."""
    client = RTVIClient.for_url(url, reconnect=ReconnectPolicy.forever(max_delay=10))
    client.on("bot-ready", lambda: print("ready", flush=True))
    client.on("user-transcription", lambda said: print("you:", said.text, flush=True) if said.final else None)
    client.on("bot-transcription", lambda said: print("bot:", said.text, flush=True))
    with contextlib.suppress(RequestTimeoutError), client:
        client.wait(seconds)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("--seconds", type=float, help="end after this time")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = given.url or stack.enter_context(EmbeddedBot()).base_url
        serve(url, given.seconds or (None if given.url else 5.0))


if __name__ == "__main__":
    sys.exit(run_program(main))
