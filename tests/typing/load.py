"""Many sessions, and users of Locust, as a type checker sees them."""

from __future__ import annotations

import math

from locust import between, task
from locust.env import Environment

from rtvi_sync import RTVIClientOptions, Turn, WebSocketTransport
from rtvi_sync.locust import RTVIUser
from rtvi_sync.media import ToneSource
from rtvi_sync.testing import LostSeconds, MeasuredClient, Measurement, Percentiles, Report, Row, run_many

URL = "ws://localhost:7860/ws-client"


def ask(client: MeasuredClient) -> None:
    """Run a scenario."""
    with client.measure("all of it"):
        client.send_text("What time is it?", audio_response=False)
        turn: Turn = client.wait_for_answer(timeout=None)
    seconds: float | None = turn.time_to_first_token
    client.send_text(seconds)  # type: ignore[arg-type]
    client.send_client_message("took", seconds)


def make() -> MeasuredClient:
    """Return the client of a session."""
    options = RTVIClientOptions(transport=WebSocketTransport(URL), mic=ToneSource())
    return MeasuredClient(options)


def note(row: Row) -> None:
    """Note the result of one session."""
    first: Measurement = row.measurements[0]
    kinds: set[str] = {"connect", "request", "answer", "step"}
    assert first.kind in kinds
    error: BaseException | None = first.error
    name: str | None = row.error if error is None else first.name
    assert name is None or row.durations[name] <= row.seconds
    lost: LostSeconds = row.lost_seconds
    assert lost.sent + lost.received + row.audio.max_delay >= 0.0


def run() -> Report:
    """Run with all options."""
    report = run_many(ask, 100, URL)
    report = run_many(
        ask,
        100,
        make,
        concurrency=10,
        spawn_rate=math.inf,
        session_timeout=60,
        connect=lambda client: client.start_bot_and_connect("http://localhost:7860/start"),
        on_row=note,
        progress=False,
    )
    run_many(ask, "many", URL)  # type: ignore[arg-type]
    run_many(ask, 1, lambda: "a client")  # type: ignore[arg-type,return-value]
    of: Percentiles = report.percentiles[0]
    slow: float = of.p50 or of.p95 or of.p99 or of.longest or 0.0
    failed: int = of.failed + len(report.failed)
    document: str = report.to_json() + report.to_csv("report.csv")
    report.show()
    assert slow < 1 or failed or document
    return report


class Caller(RTVIUser):
    """A user of Locust."""

    wait_time = between(1, 3)

    def make_client(self) -> MeasuredClient:
        return MeasuredClient.for_url(self.host or URL, mic=ToneSource())

    @task
    def call(self) -> None:
        with self.client as client:
            ask(client)


def user(environment: Environment) -> None:
    """Take a user, made by Locust."""
    client: MeasuredClient = Caller(environment).client
    client.on_measurement = print
