"""A Locust user that talks to a bot."""

from __future__ import annotations

import time
from typing import Any

from gevent import Greenlet
from gevent.pool import Group
from locust import User
from locust.env import Environment
from locust.exception import StopTest

from rtvi_sync.testing import MeasuredClient, Measurement


class RTVIUser(User):
    """A user of a voice bot. Subclasses have tasks, as those of every Locust user, and talk by `self.client`.

    The client is not connected. A task that is a call of its own connects it (``with self.client:``); for one session
    that lasts as long as the user, `on_start()` does. A session that is lost stays so until the program connects again.
    When the user stops, in whatever it is doing, its session is ended.

    These are the entries in Locust's statistics. What fails counts as a failure there, and is raised where it was
    called, which Locust counts among the exceptions too, unless the task catches it:

    | type | name | response time |
    |---|---|---|
    | CONNECT | connect, start_bot, start_bot_and_connect | until the bot is ready |
    | REQUEST | the request's type | until its answer; its size is that of the answer's JSON |
    | ANSWER | first text, first audio, complete | from the end of the user's turn; see `MeasuredClient` |
    | STEP | as given to `client.measure()` | what the program measures itself |

    Attributes:
        host: as `--host` gives it: a URL as `RTVIClient.for_url()` takes it.
        client: of this user alone.
    """

    abstract: bool = True

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.client: MeasuredClient = self.make_client()
        self.client.on_measurement = self._tell

    def make_client(self) -> MeasuredClient:
        """The client of this user, not connected. Override it for sound, or for what else a client is to be given:

            def make_client(self):
                return MeasuredClient.for_url(self.host, mic=WavSource("question.wav"))

        Raises:
            StopTest: there is no host.
        """
        if self.host is None:
            raise StopTest("No host: pass --host with the bot's URL (ws://... or http://...), or set the user's `host`")
        return MeasuredClient.for_url(self.host)

    def start(self, group: Group) -> Greenlet[..., Any]:
        """Called by Locust."""
        greenlet: Greenlet[..., Any] = super().start(group)
        # Whatever ends the user, and whatever its on_stop() does: its session ends. In a greenlet of its own.
        greenlet.link(lambda _: self.client.close())
        return greenlet

    def _tell(self, done: Measurement) -> None:
        request: dict[str, Any] = {
            "request_type": done.kind.upper(),
            "name": done.name,
            "response_time": 1000 * done.seconds,
            "response_length": done.size,
            "exception": done.error,
            "context": self.context(),
            "start_time": time.time() - (time.monotonic() - done.began),
        }
        self.environment.events.request.fire(**request)
