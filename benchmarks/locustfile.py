"""The users of `locust_workers.py`: each has one session for as long as it lives."""

from __future__ import annotations

import time

import gevent
from locust import constant, events, task
from locust.env import Environment

from benchmarks.held import PAUSE, client_of, look, silent_client_of  # Locust knows no package around this file
from benchmarks.peers.base import SETTLE
from benchmarks.server_frames import FRAMES_PER_SECOND
from rtvi_sync.locust import RTVIUser
from rtvi_sync.testing import MeasuredClient


@events.init.add_listener  # type: ignore[untyped-decorator]
def count_from_settling_on(environment: Environment, **_: object) -> None:
    """Reset the statistics `SETTLE` after all users have started, so that they leave out the time of connecting."""

    def settle(**_: object) -> None:
        if Holder in environment.user_classes:
            gevent.spawn_later(SETTLE, environment.stats.reset_all)

    environment.events.spawning_complete.add_listener(settle)  # type: ignore[no-untyped-call]


class Caller(RTVIUser):
    """A user who connects once, and is silent."""

    wait_time = constant(PAUSE)

    def make_client(self) -> MeasuredClient:
        """Return a client that is measured."""
        return silent_client_of(self.host or "")

    def on_start(self) -> None:
        """Connect."""
        self.client.connect()

    @task
    def stay(self) -> None:
        """Do nothing."""


class Holder(RTVIUser):
    """A user who connects once, and checks the session every `PAUSE`."""

    wait_time = constant(PAUSE)

    def make_client(self) -> MeasuredClient:
        """Return a client that is measured."""
        return client_of(self.host or "")

    def on_start(self) -> None:
        """Connect, and start the statistics."""
        self.client.connect()
        look(self.client)  # the statistics start here
        time.sleep(PAUSE)

    @task
    def look(self) -> None:
        """Check the session."""
        gap, rate = look(self.client)
        # Locust counts a rate below real time as a failure.
        late = None if rate > 0.98 * FRAMES_PER_SECOND else TimeoutError("not in real time")
        self.environment.events.request.fire(
            request_type="GAP", name="gap", response_time=1000 * gap, response_length=0, exception=late, context={}
        )
