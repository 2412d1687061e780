"""One thread for everything: handlers run inside the application's own loop, which also does other work.

    python3 run.py sample manual_events --url http://localhost:7860

Handlers run only inside `process_events()`, so that they share the loop's variables without a lock. A game, a terminal
user interface or a robot needs that. Without a URL it talks to the embedded bot.
"""

import argparse
import contextlib
import sys
import time

from rtvi_sync import BotLLMTextData, RTVIClient, Turn
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


def talk(url: str) -> None:
    """Ask for a story, and run the loop until the bot has told it."""
    client = RTVIClient.for_url(url, events="manual", mic=False, speaker=False, connect_timeout=15)
    score = {"sentences": 0, "rounds": 0}

    @client.on("bot-transcription")
    def count(said: BotLLMTextData) -> None:
        score["sentences"] += 1
        print(f"round {score['rounds']}: the bot said {said.text.strip()!r}")

    @client.on("turn_ended")
    def hang_up(turn: Turn) -> None:
        if turn.initiator == "user":  # and not the bot, with a greeting
            client.disconnect()

    with client:
        client.send_text("Tell me a story. Make it short.")
        give_up = time.monotonic() + 30
        while client.connected and time.monotonic() < give_up:
            score["rounds"] += 1  # the work of the application
            client.process_events(timeout=0.05)
    client.process_events()  # the events of the end of the session
    print(f"{score['sentences']} sentences in {score['rounds']} rounds")


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    url = parser.parse_args().url
    with contextlib.ExitStack() as stack:
        talk(url or stack.enter_context(EmbeddedBot(replies="Once there was a thread. It ended.")).ws_url)


if __name__ == "__main__":
    sys.exit(run_program(main))
