"""The session of the scaling tests: audio both ways in real time, and five events per second with handlers.

run_many() and, by `locustfile.py`, Locust use it.
"""

from __future__ import annotations

import functools
import os
import ssl
import time
from typing import Final

from rtvi_sync import RTVIEvent
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import MeasuredClient

from .server import Command
from .server_frames import FRAMES_PER_SECOND

EVENTS_PER_SECOND: Final = 5
#: Seconds between two checks of a session. Less than SETTLE, so that no check covers the time before.
PAUSE: Final = 2.0
#: Variable with the file of the authority that has signed the bot's certificate, if the bot speaks TLS.
AUTHORITY: Final = "RTVI_BENCH_AUTHORITY"


@functools.cache
def _context() -> ssl.SSLContext | None:
    """Return the authorities that all clients of the process trust; None: no TLS."""
    authority = os.environ.get(AUTHORITY)
    return ssl.create_default_context(cafile=authority) if authority else None


def silent_client_of(url: str) -> MeasuredClient:
    """Return a client that only connects."""
    return MeasuredClient.for_url(url, ssl_context=_context())


def client_of(url: str) -> MeasuredClient:
    """Return a client of the benchmark's server that sends and receives audio, with handlers for all events."""
    address = f"{url}?audio={FRAMES_PER_SECOND}&events={EVENTS_PER_SECOND}"
    client = MeasuredClient.for_url(address, mic=ToneSource(), ssl_context=_context())
    for event in RTVIEvent:
        # These events cost computed levels and searches for devices, which in-memory audio does not need.
        if not event.snake.endswith(("_audio_level", "s_updated")):
            client.on(event, _listen)
    return client


def look(client: MeasuredClient) -> tuple[float, float]:
    """Query the server's statistics of the audio since the last query.

    Returns:
        The longest gap, in seconds, in the audio that it received, and the number of frames of 20 ms that it received
        per second.
    """
    heard = client.send_client_request(Command.HEARD, timeout=30)
    return heard["gap"], (heard["frames"] - 1) / max(1e-9, max(heard["last"] - heard["first"], 1e-9))


def hold(client: MeasuredClient, since: float, until: float) -> list[tuple[float, float]]:
    """Check a session every `PAUSE` until a time (monotonic seconds). Return at least one check since another
    time."""
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
