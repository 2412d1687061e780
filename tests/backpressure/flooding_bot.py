"""A bot that sends more than anybody can take, in a process of its own: tells its address, runs until its input ends.

Client messages tell it what to do: ``flood`` (``count`` server messages of ``size`` characters, numbered), ``speak``
(``seconds`` of audio, as fast as the line takes it), ``large`` (one message of exactly ``bytes`` bytes on the wire).
"""

import json
import sys
from typing import Any

from rtvi_sync.protocol import frames
from rtvi_sync.testing import BotSession, EmbeddedBot


def handle(session: BotSession, message: dict[str, Any]) -> bool:
    """Do what the client asks for."""
    if message["type"] != "client-message":
        return False
    kind, wanted = message["data"]["t"], message["data"].get("d")
    if kind == "flood":
        filler = "x" * wanted["size"]
        for n in range(wanted["count"]):
            session.send(server_message({"n": n, "filler": filler}))
    elif kind == "speak":
        frame = frames.AudioRawFrame(audio=bytes(2 * 1600), sample_rate=16_000, num_channels=1)  # 0.1 s
        for _ in range(10 * wanted["seconds"]):
            session.send_frame(frame)
    elif kind == "large":
        session.send_raw(message_of(wanted["bytes"]))
    else:
        return False
    return True


def server_message(data: Any) -> dict[str, Any]:
    """A message of the application's own."""
    return {"label": "rtvi-ai", "type": "server-message", "data": data}


def message_of(size: int) -> bytes:
    """A frame of exactly `size` bytes, which holds a server message."""
    length = size
    while True:  # the length of the length changes with the length
        frame = frames.encode(frames.MessageFrame(data=json.dumps(server_message("x" * length))))
        if len(frame) == size:
            return frame
        length -= len(frame) - size


if __name__ == "__main__":
    with EmbeddedBot(handler=handle) as bot:
        sys.stdout.write(f"{bot.ws_url}\n")
        sys.stdout.flush()
        sys.stdin.read()
