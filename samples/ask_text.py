"""Ask a bot in writing: the questions on the command line, in one session.

    python3 run.py sample ask_text --url http://localhost:7860 "What time is it?" "And in Oslo?"

Without a URL it asks the embedded bot, which repeats the question.
"""

import argparse
import contextlib
import sys

from rtvi_sync import connect
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


def talk(url: str, questions: list[str]) -> None:
    """Ask all questions, and print the answers."""
    with connect(url, text_only=True, connect_timeout=15) as client:
        for question in questions:
            print(question, "->", client.ask(question, audio_response=False).bot_text)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?"])
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        talk(given.url or stack.enter_context(EmbeddedBot()).base_url, given.questions)


if __name__ == "__main__":
    sys.exit(run_program(main))
