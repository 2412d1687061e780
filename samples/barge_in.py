"""Talk over a voice bot, and see how much it had said by then.

    python3 run.py sample barge_in --url http://localhost:7860 "Tell me a joke." "Stop!"

Without a URL it interrupts the embedded bot, which repeats the question.
"""

import argparse
import contextlib
import sys

from rtvi_sync import connect
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot

LONG = "Tell me a long story about a dog that ran over all the hills of the land, day after day after day."


def talk_over(url: str, question: str, interruption: str) -> None:
    """Ask a question, and another one half a second after the bot starts to speak."""
    with connect(url, mic=False, speaker=False, connect_timeout=15) as client:
        second = client.barge_in(interruption, after="bot-started-speaking", delay=0.5)
        first = client.ask(question)
        print(f"{first.status}: {first.spoken_text!r} of {len(first.bot_text or '')} characters was spoken")
        print("then:", second.result().bot_text)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("question", nargs="?", default=LONG)
    parser.add_argument("interruption", nargs="?", default="Stop!")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        talk_over(given.url or stack.enter_context(EmbeddedBot()).ws_url, given.question, given.interruption)


if __name__ == "__main__":
    sys.exit(run_program(main))
