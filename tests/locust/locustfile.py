"""Users who make a known number of calls each, after which they go; the run is over when all have gone."""

from __future__ import annotations

import os
from typing import Any

import gevent
from locust import constant, events, runners, task
from locust.exception import StopUser

from rtvi_sync import RTVIError
from rtvi_sync.locust import RTVIUser

CALLS = int(os.environ["CALLS"])
PATIENCE = float(os.environ["PATIENCE"])  # seconds for an answer

runners.WORKER_REPORT_INTERVAL = 0.1  # seconds; else a run could not end for three


class Caller(RTVIUser):
    """Asks twice in each call, says of which worker it is, and is not put out by a bot that fails."""

    wait_time = constant(0)
    calls = 0

    @task
    def call(self) -> None:
        if self.calls == CALLS:
            raise StopUser
        self.calls += 1
        try:
            with self.client as client:
                client.send_client_request("order", os.getpid(), timeout=60)
                client.send_text("What time is it?", audio_response=False)
                client.wait_for_answer(timeout=PATIENCE)
        except RTVIError:
            pass  # it has been counted


@events.init.add_listener
def end_with_the_last_user(environment: Any, **_: object) -> None:
    """End the run with the last user, in the process that started it."""
    runner = environment.runner
    if isinstance(runner, runners.WorkerRunner):
        return

    def watch() -> None:
        # The users of a worker may have gone before another worker's arrive.
        calls = CALLS * environment.parsed_options.num_users
        while environment.stats.get("connect", "CONNECT").num_requests < calls:
            gevent.sleep(0.05)
        while runner.user_count:
            gevent.sleep(0.05)
        runner.quit()

    gevent.spawn(watch)
