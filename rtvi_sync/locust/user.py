"""Locust user that talks to a bot."""

from __future__ import annotations

from typing import Any

from gevent import Greenlet
from gevent.pool import Group
from locust import User
from locust.env import Environment
from locust.exception import StopTest

from rtvi_sync.errors import InvalidTransportParamsError
from rtvi_sync.testing import MeasuredClient, Measurement

from ..client.candidates import TransportName
from ..concurrency.clock import monotonic, wall_time
from .page import page_of


class RTVIUser(User):
    """User of a voice bot. Subclasses have tasks, like every Locust user, and talk by `self.client`.

    The client is not connected. If each task is a separate call, the task connects it (``with self.client:``). For one
    session during the user's whole life, connect it in `on_start()`. A lost session is not replaced until the
    application connects again. When the user stops, even during a call, its session is ended.

    The table lists the entries in Locust's statistics. An error counts as a failure there and is raised to the caller;
    unless the task catches it, Locust lists it among the exceptions too:

    | type | name | response time |
    |---|---|---|
    | CONNECT | connect, start_bot, start_bot_and_connect | until the bot is ready |
    | REQUEST | the request's type | until its answer, whose JSON sets the reported size |
    | ANSWER | first text, first audio, complete | from the end of the user's part of the turn; see `MeasuredClient` |
    | STEP | as given to `client.measure()` | duration measured by the application |

    A host that cannot be the URL of a bot ends the test. Locust's option `--rtvi-html FILE` writes a page about all
    sessions at the end, as `Report.to_html()` does.

    Attributes:
        host: URL of the bot, as `RTVIClient.for_url()` takes it; the value of `--host`.
        transport: name of the transport, as `RTVIClient.for_url()` takes it.
        client: used by this user only.
    """

    abstract: bool = True
    transport: TransportName = "auto"

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        try:
            self.client: MeasuredClient = self.make_client()
        except (InvalidTransportParamsError, ValueError, StopTest) as error:
            environment.process_exit_code = 1
            # Any other exception would leave Locust running without users, for the whole time of the test.
            is_of_host = isinstance(error, InvalidTransportParamsError)
            what = "No bot is reached at the host (--host or `host`): " if is_of_host else ""
            raise StopTest(f"{what}{error}") from None
        self._page = page_of(environment)
        self.client.on_measurement = self._on_measurement

    def make_client(self) -> MeasuredClient:
        """Return the client of this user, not connected. Override it to pass audio or other options:

            def make_client(self):
                return MeasuredClient.for_url(self.host, self.transport, mic=Path("question.wav"))

        Raises:
            StopTest: no host is set.
        """
        if self.host is None:
            raise StopTest("No host: pass --host with the bot's URL (ws://... or http://...), or set the user's `host`")
        return MeasuredClient.for_url(self.host, transport=self.transport)

    def start(self, group: Group) -> Greenlet[..., Any]:
        """Start the user's greenlet. Called by Locust."""
        greenlet: Greenlet[..., Any] = super().start(group)
        # Ends the session in a greenlet of its own, regardless of the cause of the stop and of on_stop().
        greenlet.link(lambda _: self._leave())
        return greenlet

    def _leave(self) -> None:
        self.client.close()
        if self._page is not None:
            self._page.leave(self)

    def _on_measurement(self, done: Measurement) -> None:
        if self._page is not None:
            self._page.note(self, done)
        request: dict[str, Any] = {
            "request_type": done.kind.upper(),
            "name": done.name,
            "response_time": 1000 * done.seconds,
            "response_length": done.size,
            "exception": done.error,
            "context": self.context(),
            "start_time": wall_time() - (monotonic() - done.began),
        }
        self.environment.events.request.fire(**request)
