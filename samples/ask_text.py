"""Ask a bot in writing: one question of the application's own, then whatever is given on the command line.

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
    """Send a text and gather the words of the answer."""
    words = []
    # First listen, then ask: the answer may be faster than the next line of the program.
    with client.events("bot-llm-text", "bot-llm-stopped", timeout=30) as events:
        client.send_text(question, audio_response=False)
        for event in events:
            if event.type is RTVIEvent.BOT_LLM_STOPPED:
                break
            words.append(event.data.text)
    return "".join(words)


def talk(url: str, questions: list[str]) -> None:
    # No microphone and no loudspeaker are wanted.
    client = RTVIClient.for_url(url, enable_mic=False, speaker=NullSink(), connect_timeout=15)
    with client:
        try:
            # What kinds of request there are is up to the bot.
            print("order 7 is", client.send_client_request("get-order", {"number": 7}, timeout=5))
        except RequestRejectedError as refusal:
            print("no such order:", refusal)
        for question in questions:
            print(question, "->", ask(client, question))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?"])
    given = parser.parse_args()
    bot = EmbeddedBot(on_request={"get-order": lambda order: {**order, "state": "sent"}})
    with contextlib.ExitStack() as stack:
        talk(given.url or stack.enter_context(bot).ws_url, given.questions)


if __name__ == "__main__":
    sys.exit(run_program(main))
