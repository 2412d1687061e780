"""Ask a bot in writing: one request of the application, then the questions on the command line.

    python3 run.py sample ask_text --url ws://localhost:7860/ws-client "What time is it?" "And in Oslo?"

Without a URL it asks the built-in bot, which repeats what it reads.
"""

import argparse
import contextlib
import sys

from rtvi_sync import RequestRejectedError, RTVIClient, RTVIEvent
from rtvi_sync.cli import run_program
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot


def ask(client: RTVIClient, question: str) -> str:
    """Send a text, and return the words of the answer."""
    words = []
    # The stream is opened first: the answer may arrive before the next line runs.
    with client.events("bot-llm-text", "bot-llm-stopped", timeout=30) as events:
        client.send_text(question, audio_response=False)
        for event in events:
            if event.type is RTVIEvent.BOT_LLM_STOPPED:
                break
            words.append(event.data.text)
    return "".join(words)


def talk(url: str, questions: list[str]) -> None:
    """Send a request, then ask all questions in one session."""
    # Neither a microphone nor a speaker is opened.
    client = RTVIClient.for_url(url, enable_mic=False, speaker=NullSink(), connect_timeout=15)
    with client:
        try:
            # The bot defines the types of requests.
            print("order 7 is", client.send_client_request("get-order", {"number": 7}, timeout=5))
        except RequestRejectedError as refusal:
            print("no such order:", refusal)
        for question in questions:
            print(question, "->", ask(client, question))


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
