"""A server in this process whose pages talk, and its users."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server

from rtvi_sync import RTVIClient
from rtvi_sync.flask import RTVIBlueprint
from rtvi_sync.testing import EmbeddedBot
from tests.flask.browser import site_of
from tests.support.slowness import GUARD
from tests.support.talking_page import RATE, Talker


class Site:
    """A server of pages that talk with one bot.

    Attributes:
        blueprint: The relay.
        clients: Clients of its sessions.
    """

    def __init__(
        self, bot: EmbeddedBot, client_options: dict[str, Any], record: Path | None = None, **options: Any
    ) -> None:
        self.clients: list[RTVIClient] = []

        def make_client(_: object) -> RTVIClient:
            self.clients.append(RTVIClient.for_url(bot.ws_url, connect_timeout=10.0, **client_options))
            if record is not None:
                self.clients[-1].record(record)
            return self.clients[-1]

        self.blueprint = RTVIBlueprint(make_client, voice=True, **options)
        self.app = site_of(self.blueprint)
        self._server = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.talkers: list[Talker] = []

    def user(self) -> Talker:
        self.talkers.append(Talker(self.url))
        return self.talkers[-1]

    def close(self) -> None:
        for talker in self.talkers:
            talker.close()
        self.blueprint.close()
        self._server.shutdown()
        self._thread.join(GUARD)
        self._server.server_close()


Serve = Callable[..., Site]
LONG = " ".join(f"word{number}" for number in range(20)) + "."
PAUSE = bytes(2 * RATE)  # a second of silence, after which a bot answers
START = json.dumps({"type": "start", "sample_rate_hz": RATE, "after": ""})
