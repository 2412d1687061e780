"""Where a bot is, as a user of the command line says it, and how it is reached there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import attrs

from rtvi_sync import BotReadyData, RTVIClient, StartBotError, WebSocketTransport

URL_HELP = (
    "ws:// or wss:// of its WebSocket; http:// or https:// of its connect endpoint's server (POST URL/connect), or, "
    "ending in /start, of a Pipecat runner (http://localhost:7860/start)"
)


@attrs.frozen
class Address:
    """A bot's URL, and what its server wants to see.

    Attributes:
        url: as `arguments.url()` returns it.
        token: of the WebSocket; None: what the connect endpoint says.
        headers: of the request to a connect endpoint, or, without one, of the WebSocket's.
    """

    url: str
    token: str | None = attrs.field(default=None, repr=False)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    def client(self, **options: Any) -> tuple[RTVIClient, Callable[[], BotReadyData]]:
        """A client with these options, and what connects it.

        What connects raises what `RTVIClient.connect()` does; a server without a connect endpoint comes with advice.
        """
        direct = self.url if self.url.startswith("ws") else None
        base = None if direct or self._starts else self.url.rstrip("/").removesuffix("/connect")
        client = RTVIClient(
            transport=WebSocketTransport(direct, self.token, self.headers if direct else None),
            params={"base_url": base, "headers": self.headers},
            **options,
        )
        if not self._starts:
            return client, partial(self._connected, client.connect)
        return client, partial(client.start_bot_and_connect, self.url, headers=self.headers)

    @property
    def _starts(self) -> bool:
        return self.url.startswith("http") and urlsplit(self.url).path.rstrip("/").endswith("/start")

    @staticmethod
    def _connected(connect: Callable[[], BotReadyData]) -> BotReadyData:
        try:
            return connect()
        except StartBotError as error:
            if error.status != 404:
                raise
            raise StartBotError(f"{error} (the address of a Pipecat runner ends in /start)", status=404) from error


def greeting_of(ready: BotReadyData) -> str:
    """What a bot says about itself."""
    library = " ".join(filter(None, (ready.about.library, ready.about.library_version)))
    return f"connected to {library or 'a bot'}, RTVI version {ready.version or 'unknown'}"
