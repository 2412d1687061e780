"""A session as the tests of scale hold it: sound both ways in real time, and five events a second for whoever listens.

It serves run_many() and, by `locustfile.py`, Locust alike.
"""

from __future__ import annotations

import time
from typing import Final

from rtvi_sync import RTVIEvent
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import MeasuredClient

from .server import PIECES_PER_SECOND, Command

EVENTS_PER_SECOND: Final = 5
#: Seconds between two looks at a session.
PAUSE: Final = 2.0
#: Seconds until what connecting has stirred up is over. More than a pause: then no look tells of what was before.
SETTLE: Final = 3.0


def client_of(url: str) -> MeasuredClient:
    """A client of the benchmark's server that speaks, hears, and listens to all that is said and done."""
    address = f"{url}?audio={PIECES_PER_SECOND}&events={EVENTS_PER_SECOND}"
    client = MeasuredClient.for_url(address, mic=ToneSource())
    for event in RTVIEvent:
        # Levels have to be computed, and devices to be looked for, which nobody wants whose sound is in memory.
        if not event.snake.endswith(("_audio_level", "s_updated")):
            client.on(event, _listen)
    return client


def look(client: MeasuredClient) -> tuple[float, float]:
    """Ask the server something.

    Returns:
        The longest time, in seconds, in which it heard nothing since it was asked last, and how many pieces of 20 ms
        it heard in each second since.
    """
    heard = client.send_client_request(Command.HEARD, timeout=30)
    return heard["gap"], (heard["frames"] - 1) / max(1e-9, max(heard["last"] - heard["first"], 1e-9))


def hold(client: MeasuredClient, since: float, until: float) -> list[tuple[float, float]]:
    """Look at a session every two seconds until a moment (monotonic seconds), and until there is something to return:
    what was seen since another moment."""
    looks: list[tuple[float, float]] = []
    while time.monotonic() < until or not looks:
        time.sleep(PAUSE)
        begun = time.monotonic()
        seen = look(client)
        if begun >= since:
            looks.append(seen)
    return looks


def _listen(_: object) -> None:
    pass
