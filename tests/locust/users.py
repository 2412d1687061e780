"""A program that is patched by Locust: users talk, and are killed at any point. It prints the results, and waits for a
line before it ends."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from gevent.pool import Group
from locust import task
from locust.env import Environment
from locust.exception import StopTest

from rtvi_sync import RequestTimeoutError
from rtvi_sync.locust import RTVIUser
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import MeasuredClient
from tests.support import limits
from tests.support.slowness import GUARD

good, mute = sys.argv[1:]
environment = Environment()
told: list[dict[str, Any]] = []


@environment.events.request.add_listener
def listen(exception: BaseException | None = None, **entry: Any) -> None:
    told.append({**entry, "exception": exception and type(exception).__name__})


class Talker(RTVIUser):
    """A user with a voice, whose `does` is one of the ways to spend one's time below."""

    host = good

    def make_client(self) -> MeasuredClient:
        return MeasuredClient.for_url(self.host or "", mic=ToneSource(duration=0.2), connect_timeout=GUARD)

    def context(self) -> dict[str, str]:
        return {"who": "me"}

    @task
    def live(self) -> None:
        self.does(self.client)

    does: Callable[[MeasuredClient], object]


def talk() -> dict[str, Any]:
    """Return the figures that a user's calls report to Locust, and the latencies of the turn among them, in seconds."""
    client = Talker(environment).client
    with client:
        client.wait_for_answer(GUARD)
        turn = client.turns()[-1]
        client.send_client_request("order", {"number": 7})
        with client.measure("nothing"):
            pass
        with contextlib.suppress(RequestTimeoutError):
            client.send_client_request("never", timeout=0.05)
    client.close()
    return {"entries": told.copy(), "turn": [turn.time_to_first_token, turn.time_to_first_audio]}


def without(address: str | None, by: Any = "auto") -> tuple[str, int | None]:
    """Return why a user with this host, or transport, ends the test, and the exit status that Locust gets."""

    class Nowhere(RTVIUser):
        host = address
        transport = by

    environment.process_exit_code = None
    try:
        Nowhere(environment)
    except StopTest as error:
        return str(error), environment.process_exit_code
    return "it was made", None


def ask(client: MeasuredClient) -> None:
    with client:
        client.send_client_request("never", timeout=None)


def hear(client: MeasuredClient) -> None:
    with client:
        client.wait_for_answer(None)
        client.wait_for_answer(None)


def wait(client: MeasuredClient) -> None:
    with client:
        client.wait_for("server-message")


def sleep(client: MeasuredClient) -> None:
    client.connect()
    gevent.sleep(GUARD)


def flap(client: MeasuredClient) -> None:
    with client:
        pass


def kill(does: Callable[[MeasuredClient], object], url: str, pause: float) -> int:
    """Kill users who do that, each in another moment; how many live on."""
    group = Group()
    kind = type("Victim", (Talker,), {"does": staticmethod(does), "host": url})
    users = [kind(environment) for _ in range(10)]
    for user in users:
        user.start(group)
        gevent.sleep(pause * random.random() / 10)
    gevent.sleep(pause)
    gevent.joinall([gevent.spawn(user.stop, True) for user in users], timeout=GUARD)
    return len(group)


def left() -> list[str]:
    """Return the greenlets and descriptors there are."""
    gc.collect()
    alive = [thing for thing in gc.get_objects() if isinstance(thing, gevent.Greenlet) and not thing.dead]
    return [*map(str, alive), *sorted(os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else [])]


limits.change(idle_runtime=0.05, idle_worker=0.05)
before = left()
found: dict[str, Any] = {
    **talk(),
    "no host": [without(None), without("localhost:7860"), without(good, "pigeon"), without(good, "webrtc")],
    "running": {
        "connecting": kill(MeasuredClient.connect, mute, 0.05),
        "asking": kill(ask, good, 0.1),
        "hearing": kill(hear, good, 0.1),
        "waiting": kill(wait, good, 0.1),
        "sleeping": kill(sleep, good, 0.1),
        "flapping": sum(kill(flap, good, 0.02) for _ in range(5)),
    },
}
with gevent.Timeout(GUARD, False):  # type: ignore[arg-type]  # False: it raises nothing
    while left() != before:
        gevent.sleep(0.1)
json.dump({**found, "left": [line for line in left() if line not in before]}, sys.stdout)
sys.stdout.write("\n")
sys.stdout.flush()
sys.stdin.readline()  # the exit would end the remaining sessions
os._exit(0)  # with Python 3.10 finalizers of `logging` fail at the exit of every process that Locust has patched
