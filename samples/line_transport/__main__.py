"""A conversation over a transport of one's own: lines of JSON over TCP, without audio.

    python3 run.py sample line_transport --url tcp://localhost:7070 "What time is it?" "And in Oslo?"

Without a URL it talks to the small bot below, which repeats each text. `transport.py` beside this file is the
transport.
"""

import argparse
import json
import socketserver
import sys
import threading
from typing import Any

from rtvi_sync import RTVIClient, RTVIEvent
from rtvi_sync.cli import run_program

from .transport import LineTransport


class Bot(socketserver.StreamRequestHandler):
    """The bot's end of a line."""

    def handle(self) -> None:
        """Answer the messages of a client."""
        for line in self.rfile:
            message = json.loads(line)
            if message["type"] == "client-ready":
                self.say("bot-ready", {"version": "2.2.0", "about": {"library": "line_transport"}}, message["id"])
            elif message["type"] == "send-text":
                self.say("bot-llm-started")
                self.say("bot-llm-text", {"text": f"You said: {message['data']['content']}"})
                self.say("bot-llm-stopped")

    def say(self, type: str, data: Any = None, id: str = "") -> None:
        """Send a message."""
        message = {"label": "rtvi-ai", "type": type, "data": data, "id": id}
        self.wfile.write(json.dumps(message).encode() + b"\n")


def talk(url: str, questions: list[str]) -> None:
    """Hold a session with the bot."""
    with RTVIClient(transport=LineTransport(url), connect_timeout=15) as client:
        for question in questions:
            with client.events("bot-llm-text", "bot-llm-stopped", timeout=30) as events:
                client.send_text(question)
                print(question, end=" -> ")
                for event in events:
                    if event.type is RTVIEvent.BOT_LLM_STOPPED:
                        break
                    print(event.data.text, end="")
                print()


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser(prog="run.py sample line_transport")
    parser.add_argument("--url", help="tcp://host:port of a bot, because this transport is neither HTTP nor WebSocket")
    parser.add_argument("questions", nargs="*", default=["What time is it?", "And in Oslo?"])
    given = parser.parse_args()
    if given.url:
        talk(given.url, given.questions)
        return
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Bot) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            talk(f"tcp://127.0.0.1:{server.server_address[1]}", given.questions)
        finally:
            server.shutdown()


if __name__ == "__main__":
    sys.exit(run_program(main))
