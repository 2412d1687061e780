"""Ask a bot in writing: one request of the application, then the questions on the command line.

    python3 run.py sample ask_text --url ws://localhost:7860/ws-client "What time is it?" "And in Oslo?"

Without a URL it asks the built-in bot, which repeats what it reads.
"""

import argparse
import contextlib
import sys

from rtvi_sync import RequestRejectedError, RequestTimeoutError, connect
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


def talk(url: str, questions: list[str]) -> None:
    """Send a request, then ask all questions in one session."""
    with connect(url, text_only=True, connect_timeout=15) as client:
        try:
            # The bot defines the types of requests. Pipecat's refuse or ignore one that they do not know.
            print("order 7 is", client.send_client_request("get-order", {"number": 7}, timeout=2))
        except (RequestRejectedError, RequestTimeoutError) as error:
            print("no order:", error)
        for question in questions:
            print(question, "->", client.ask(question, audio_response=False).bot_text)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?"])
    given = parser.parse_args()
    bot = EmbeddedBot(on_request={"get-order": lambda order: {**order, "state": "sent"}})
    with contextlib.ExitStack() as stack:
        talk(given.url or stack.enter_context(bot).ws_url, given.questions)


if __name__ == "__main__":
    sys.exit(run_program(main))
