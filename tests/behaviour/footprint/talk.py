"""A talk of some seconds with audio both ways: `python talk.py WS_URL SECONDS [own]`. Run under strace by the tests.

With `own` the audio is the application's: each audio frame of the bot is handed to a function, which pushes
silence of its length.
"""

import sys
import threading
from typing import Any

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import CallbackSink, NullSink, PushSource, SilenceSource


def main(ws_url: str, seconds: float, *, own: bool) -> None:
    """Talk until `seconds` have passed since the bot started to speak."""
    voice = PushSource(16_000)
    media: dict[str, Any] = {"mic": SilenceSource(), "speaker": NullSink()}
    if own:
        media = {"mic": voice, "speaker": CallbackSink(lambda pcm, _: voice.push(bytes(len(pcm))))}
    client = RTVIClient(transport=WebSocketTransport(ws_url), **media)
    speaking, over = threading.Event(), threading.Event()
    client.on("bot-started-speaking", speaking.set)
    client.on("bot-stopped-speaking", over.set)
    with client:
        client.send_text("go on")
        speaking.wait()
        assert not over.wait(seconds), "the bot was to speak all the time"


main(sys.argv[1], float(sys.argv[2]), own="own" in sys.argv[3:])
