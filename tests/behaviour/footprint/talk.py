"""A talk of some seconds with audio both ways: `python talk.py WS_URL SECONDS`. Run under strace by the tests."""

import sys
import threading

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.media import NullSink, SilenceSource


def main(ws_url: str, seconds: float) -> None:
    """Talk until `seconds` have passed since the bot began to speak."""
    client = RTVIClient(transport=WebSocketTransport(ws_url), mic=SilenceSource(), speaker=NullSink())
    speaking, over = threading.Event(), threading.Event()
    client.on("bot-started-speaking", speaking.set)
    client.on("bot-stopped-speaking", over.set)
    with client:
        client.send_text("go on")
        assert speaking.wait(60)
        assert not over.wait(seconds), "the bot was to speak all the time"


main(sys.argv[1], float(sys.argv[2]))
