"""A page's behaviour, without a browser: requests by Flask's test client, and an event stream read part by part."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import flask
from werkzeug.test import TestResponse

from rtvi_sync import RTVIClient, WebSocketTransport
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.media import NullSink
from tests.support.slowness import GUARD

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def client_for(ws_url: str, **options: Any) -> RTVIClient:
    """Return a client as an application makes it for a user."""
    transport = WebSocketTransport(ws_url)
    return RTVIClient(transport=transport, enable_mic=False, speaker=NullSink(), **{"connect_timeout": 10.0, **options})


def site_of(blueprint: RTVIBlueprint) -> flask.Flask:
    """Return an application with a page and a relay."""
    app = flask.Flask(__name__)
    app.config.update(SECRET_KEY="known to the tests", TESTING=True)
    app.register_blueprint(blueprint, url_prefix="/bot")

    @app.get("/")
    def page() -> str:
        blueprint.set_cookie()
        return "the page"

    return app


def wait_until_ready(state: Callable[[], Any]) -> None:
    """Wait until a session that is being connected is ready; `state` returns its state."""
    give_up = time.monotonic() + GUARD
    while (told := state()) != {"state": "ready"}:
        assert "state" in told, told
        assert time.monotonic() < give_up, told
        threading.Event().wait(0.005)


class Stream:
    """An open event stream. Iterates over its events; heartbeats and other comments are counted.

    Attributes:
        parts: the parts of the stream as the server sends them.
        last_id: the id that an `EventSource` would send when it reconnects.
    """

    def __init__(self, parts: Iterator[bytes], close: Callable[[], object]) -> None:
        self.parts = parts
        self.close = close
        self.comments = 0
        self.last_id = ""
        self._events = self._read()

    def _read(self) -> Iterator[dict[str, Any]]:
        read = ""
        for part in self.parts:
            read += part.decode("ascii")
            *blocks, read = read.split("\n\n")
            for block in blocks:
                *ids, data = block.split("\n")
                if not data.startswith("data: "):
                    self.comments += 1
                    continue
                self.last_id = ids[0].removeprefix("id: ") if ids else self.last_id
                yield json.loads(data.removeprefix("data: "))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._events

    def until(self, event: str, where: Callable[[Any], bool] = lambda _: True) -> list[dict[str, Any]]:
        """Return the events up to the first of a type for whose data `where` is true, which is the last of them."""
        found = []
        for each in self:
            found.append(each)
            if each["event"] == event and where(each.get("data")):
                return found
        raise AssertionError(f"the stream ended without {event}: {found}")


class User:
    """A browser with cookies of its own."""

    def __init__(self, app: flask.Flask) -> None:
        self.http = app.test_client()
        self.headers = dict(SAME_ORIGIN)

    def post(self, route: str, body: Any = None, **options: Any) -> TestResponse:
        """Send JSON as the page does."""
        return self.http.post(f"/bot/{route}", json={} if body is None else body, headers=self.headers, **options)

    def ask(self) -> TestResponse:
        """Load the page, and ask for a session."""
        assert self.http.get("/").text == "the page"
        return self.post("session")

    def start(self) -> None:
        """Start a session that has to succeed."""
        answer = self.ask()
        assert answer.status_code == 201, answer.json
        wait_until_ready(lambda: self.get("session").json)

    def get(self, route: str, **headers: str) -> TestResponse:
        return self.http.get(f"/bot/{route}", headers={**self.headers, **headers})

    def stream(self, last_id: str = "") -> Stream:
        """Open an event stream, as an `EventSource` that has seen the event of that id."""
        response = self.get("events", **({"Last-Event-ID": last_id} if last_id else {}))
        assert response.status_code == 200, response.get_data(as_text=True)
        assert response.mimetype == "text/event-stream"
        return Stream(iter(response.response), response.close)  # type: ignore[arg-type]
