"""Sends this process Ctrl-C during `connect()`, aimed at its end, and counts the states of the client afterwards.

Run as a script: ``python -m tests.behaviour.life.aimed [URL [COUNT]]`` connects to the bot at a URL, or to an embedded
one, and prints the counts. "wedged" counts the clients that no call can revive: it must be 0.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import random
import signal
import statistics
import sys
import threading
import time

from rtvi_sync import RTVIClient, RTVIError
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import EmbeddedBot
from tests.behaviour.life.blocking import tell
from tests.support.slowness import GUARD


def is_wedged(client: RTVIClient) -> bool:
    """Do the work of a worker for its next request; return True if it fails."""
    try:
        if not client.connected:
            client.connect()
        client.ask("Are you there?", GUARD, audio_response=False)
    except RTVIError:
        return True
    finally:
        client.disconnect()
    return False


def interrupt(url: str, count: int) -> dict[str, int]:
    """Interrupt `count` calls of `connect()`, and return how often each outcome was seen."""
    rng = random.Random(7)
    client = RTVIClient.for_url(url, mic=ToneSource(440, 3600), speaker=False, connect_timeout=GUARD)
    times: list[float] = []
    found: collections.Counter[str] = collections.Counter(wedged=0)
    with contextlib.closing(client):
        while found["interrupted"] < count:
            if len(times) < 7:
                began = time.perf_counter()
                client.connect()
                times.append(time.perf_counter() - began)
                client.disconnect()
                continue
            # Two thirds at the end, a third anywhere.
            moment = statistics.median(times[-50:]) * (rng.uniform(0.8, 1.1) if rng.random() < 0.67 else rng.random())
            striker = threading.Timer(moment, os.kill, (os.getpid(), signal.SIGINT))
            returned, struck = False, False
            try:
                began = time.perf_counter()
                striker.start()
                client.connect()
                returned = True
                times.append(time.perf_counter() - began)
                striker.join()
                time.sleep(0.01)  # the signal is handled here, at the latest
            except KeyboardInterrupt:
                struck = True
            assert struck, "no signal arrived"
            striker.join()
            found["interrupted"] += not returned
            found["returned before"] += returned
            found["left connected"] += client.connected and not returned
            if is_wedged(client):
                found["wedged"] += 1
                client.close()
                client = RTVIClient.for_url(url, mic=ToneSource(440, 3600), speaker=False, connect_timeout=GUARD)
        client.close()
    return dict(found)


def main(url: str, count: int) -> None:
    """Interrupt, and print the counts."""
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        if not url:
            url = stack.enter_context(EmbeddedBot(replies="Yes.")).ws_url
        tell(json.dumps(interrupt(url, count)))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", int(sys.argv[2]) if len(sys.argv) > 2 else 300)
