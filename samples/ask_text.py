"""Ask a bot in writing: one question of the application's own, then whatever is given on the command line.

    python3 run.py sample ask_text --url ws://localhost:7860/ws-client "What time is it?" "And in Oslo?"

Without a URL it asks the built-in bot, which repeats what it reads.
"""

import argparse

from rtvi_sync import RequestRejectedError, RTVIClient, RTVIEvent, WebSocketTransport
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


def main(url: str, questions: list[str]) -> None:
    # No microphone and no loudspeaker are wanted.
    client = RTVIClient(transport=WebSocketTransport(url), enable_mic=False, speaker=NullSink(), connect_timeout=15)
    with client:
        try:
            # What kinds of request there are is up to the bot.
            print("order 7 is", client.send_client_request("get-order", {"number": 7}, timeout=5))
        except RequestRejectedError as refusal:
            print("no such order:", refusal)
        for question in questions:
            print(question, "->", ask(client, question))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the WebSocket of a bot")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?"])
    given = parser.parse_args()
    if given.url:
        main(given.url, given.questions)
    else:
        with EmbeddedBot(on_request={"get-order": lambda order: {**order, "state": "sent"}}) as bot:
            main(bot.ws_url, given.questions)
