"""A kiosk: it has a session whenever there is a bot, until Ctrl-C, and prints the words of both sides.

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
    limit = None if seconds is None else 15.0  # a kiosk waits for its bot as long as it runs
    reconnect = ReconnectPolicy.forever(max_delay=10)
    client = RTVIClient.for_url(url, reconnect=reconnect, connect_timeout=limit, max_turn_audio=0)
    client.on("bot-ready", lambda: print("ready", flush=True))
    client.on("user-transcription", lambda said: print("you:", said.text, flush=True) if said.final else None)
    client.on("turn-ended", lambda turn: print("bot:", turn.bot_text, flush=True) if turn.bot_text else None)
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
        serve(url, 5.0 if given.seconds is None and not given.url else given.seconds)


if __name__ == "__main__":
    sys.exit(run_program(main))
