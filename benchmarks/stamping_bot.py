"""A bot, in a process of its own, that records when each audio frame arrives and when it sends its own.

It prints its address, serves one client, and prints its records when that client disconnects: a JSON object with
`heard` and `said`, lists of the time (of the clock that all processes share) and the `mark()` of a frame.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from typing import Any, Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from rtvi_sync.protocol.frames import AudioRawFrame, MessageFrame, decode, encode

RATE: Final = 24000
#: Seconds of audio in each frame, as Pipecat bots send it.
FRAME: Final = 0.04
#: Seconds of silence after each second of noise.
PAUSE: Final = 0.5
_SPOKEN_FRAMES: Final = 25
_MARK_BYTES: Final = 24


def mark(pcm: bytes) -> str:
    """Return the first bytes of a frame of noise, which are unique."""
    return pcm[:_MARK_BYTES].hex()


class Bot:
    """The bot of one client.

    Args:
        seconds: the duration of its speech: seconds of noise, with pauses.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._noise = random.Random(1)
        self.heard: list[tuple[float, str]] = []
        self.said: list[tuple[float, str]] = []
        self.done = threading.Event()

    def serve(self, connection: ServerConnection) -> None:
        """Answer until the client disconnects."""
        try:
            for data in connection:
                now = time.monotonic()
                frame = decode(data) if isinstance(data, bytes) else None
                if isinstance(frame, AudioRawFrame) and any(frame.audio):
                    self.heard.append((now, mark(frame.audio)))
                elif isinstance(frame, MessageFrame):
                    self._answer(connection, json.loads(frame.data))
        finally:
            self.done.set()

    def _answer(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "client-ready":
            ready = {"label": "rtvi-ai", "type": "bot-ready", "id": message["id"], "data": {"version": "2.0.0"}}
            connection.send(encode(MessageFrame(data=json.dumps(ready))))
            threading.Thread(target=self._speak, args=[connection], daemon=True).start()

    def _speak(self, connection: ServerConnection) -> None:
        due = time.monotonic()
        end = due + self._seconds
        try:
            while due < end:
                for _ in range(_SPOKEN_FRAMES):
                    pcm = self._noise.randbytes(2 * int(RATE * FRAME))
                    self.done.wait(max(0.0, due - time.monotonic()))
                    data = encode(AudioRawFrame(audio=pcm, sample_rate=RATE, num_channels=1))
                    self.said.append((time.monotonic(), mark(pcm)))
                    connection.send(data)
                    due += FRAME
                due += PAUSE
        except ConnectionClosed:
            pass  # the client has disconnected


def main() -> None:
    """Serve one client."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    bot = Bot(parser.parse_args().seconds)
    with serve(bot.serve, "127.0.0.1", 0, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"ws://127.0.0.1:{server.socket.getsockname()[1]}", flush=True)
        bot.done.wait()
        server.shutdown()
    json.dump({"heard": bot.heard, "said": bot.said}, sys.stdout)


if __name__ == "__main__":
    main()
