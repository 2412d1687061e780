"""Give a service of a bot methods and an event of its own: a helper for the voice of a bot of RTVI 0.3 or 1.x.

python3 run.py sample voice_helper --url http://localhost:7860   # without a URL: the embedded bot
"""

import argparse
import contextlib
import sys

from rtvi_sync import RTVIClient, RTVIClientHelper, RTVIMessage
from rtvi_sync.cli import run_program
from rtvi_sync.testing import EmbeddedBot


class VoiceHelper(RTVIClientHelper):
    """A helper that makes the bot speak, in a voice. Its event `spoken` has the text of each complete speech."""

    message_types = ("bot-tts-text", "bot-stopped-speaking")
    event_names = ("spoken",)

    def on_registered(self) -> None:
        """Start with an empty speech."""
        self._words: list[str] = []

    def say(self, text: str) -> None:
        """Make the bot say `text`, without its language model."""
        self.client.action({"service": self.service, "action": "say", "arguments": [{"name": "text", "value": text}]})

    def use(self, voice: str) -> str:
        """Change the voice, and return the one before."""
        before = str(self.client.get_service_option_value_from_config(self.service, "voice"))
        self.client.update_config([{"service": self.service, "options": [{"name": "voice", "value": voice}]}])
        return before

    def handle_message(self, message: RTVIMessage) -> None:
        """Collect words, and emit `spoken` at the end of a speech. Called in order, on the handlers' thread."""
        if message.type == "bot-tts-text":
            self._words.append(message.data["text"])
        else:
            self.emit("spoken", " ".join(self._words))
            self._words.clear()


def talk(url: str) -> None:
    """Change the voice, and make the bot speak."""
    client = RTVIClient.for_url(url, mic=False, speaker=False, connect_timeout=15)
    voice = client.register_helper("tts", VoiceHelper({"on_spoken": lambda text: print("spoken:", text)}))
    with client:
        print("the voice was", voice.use("alto"))
        with client.events("bot-stopped-speaking", timeout=30) as events:
            voice.say("Good evening.")
            next(events)


def main() -> None:
    """Read the command line, and run the sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="where the bot is: ws://..., or http://... of its server")
    bot = EmbeddedBot(version="0.3.0", config=[{"service": "tts", "options": [{"name": "voice", "value": "bass"}]}])
    with contextlib.ExitStack() as stack:
        talk(parser.parse_args().url or stack.enter_context(bot).ws_url)


if __name__ == "__main__":
    sys.exit(run_program(main))
