"""A bot that sends more than a client can read, in its own process. It prints its address and runs until its input
ends.

Client messages control it: ``flood`` (``count`` server messages of ``size`` characters, numbered), ``speak``
(``seconds`` of audio, as fast as the line takes it), ``recite`` (the first ``seconds`` of a known speech, at ``speed``
times the pace of speech; None: as fast as the line takes it), ``large`` (one message of exactly ``bytes`` bytes on the
wire, over either route). The request ``recited`` is answered with the seconds that were sent by all ``recite``.
"""

import json
import random
import sys
import threading
import time
from typing import Any

from rtvi_sync.testing import BotSession, EmbeddedBot
from tests.support.wire import frames

RATE_HZ = 24_000
FRAME_SECONDS = 0.02

recited: list[float] = []


def speech(seconds: float) -> bytes:
    """Return the first seconds of the speech: noise, in which nothing is alike."""
    return random.Random(1).randbytes(2 * round(seconds * RATE_HZ))


def recite(session: BotSession, seconds: float, speed: float | None) -> None:
    """Send the speech in frames."""
    pcm, size = speech(seconds), round(2 * FRAME_SECONDS * RATE_HZ)
    clock, begun = threading.Event(), time.monotonic()
    for number, start in enumerate(range(0, len(pcm), size)):
        if speed is not None:
            clock.wait(begun + number * FRAME_SECONDS / speed - time.monotonic())
        frame = frames.AudioRawFrame(audio=pcm[start : start + size], sample_rate=RATE_HZ, num_channels=1)
        session.send_frame(frame)
        recited.append(FRAME_SECONDS)


def handle(session: BotSession, message: dict[str, Any]) -> bool:
    """Carry out the client's request."""
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
    elif kind == "recite":
        recite(session, wanted["seconds"], wanted["speed"])
    elif kind == "large":
        session.send_raw((text_of if session.eval_route else message_of)(wanted["bytes"]))
    else:
        return False
    return True


def server_message(data: Any) -> dict[str, Any]:
    """Return a message of the application's own."""
    return {"label": "rtvi-ai", "type": "server-message", "data": data}


def message_of(size: int) -> bytes:
    """Return a frame of exactly `size` bytes, which holds a server message."""
    length = size
    while True:  # the length of the length changes with the length
        frame = frames.encode(frames.MessageFrame(data=json.dumps(server_message("x" * length))))
        if len(frame) == size:
            return frame
        length -= len(frame) - size


def text_of(size: int) -> str:
    """Return the JSON text of exactly `size` characters of a server message."""
    return json.dumps(server_message("x" * (size - len(json.dumps(server_message(""))))))


if __name__ == "__main__":
    with EmbeddedBot(handler=handle, on_request={"recited": lambda _: sum(recited)}) as bot:
        sys.stdout.write(f"{bot.ws_url}\n")
        sys.stdout.flush()
        sys.stdin.read()
