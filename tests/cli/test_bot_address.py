"""Clients for the URL of a command: headers and tokens go where they belong."""

from __future__ import annotations

import pytest

from rtvi_sync import StartBotError
from rtvi_sync.cli.bot_address import create_client
from rtvi_sync.media import NullSink
from rtvi_sync.testing import EmbeddedBot
from tests.support.slowness import GUARD


@pytest.mark.parametrize("path", ["/connect", "/start"])
def test_headers_go_to_the_endpoint(path: str) -> None:
    """The connect and the start endpoint receive them; without them the server refuses."""
    with EmbeddedBot(headers={"X-Key": "abc"}) as bot:
        for headers in ({"X-Key": "abc"}, {}):
            client = create_client(
                bot.base_url + path, headers=headers, enable_mic=False, speaker=NullSink(), connect_timeout=GUARD
            )
            try:
                if headers:
                    assert client.connect().version
                else:
                    with pytest.raises(StartBotError, match="401"):
                        client.connect()
            finally:
                client.close()


def test_a_token_goes_to_the_websocket() -> None:
    """The token is in the handshake's query."""
    with EmbeddedBot() as bot:
        client = create_client(bot.ws_url, token="abc", enable_mic=False, speaker=NullSink(), connect_timeout=GUARD)
        try:
            client.connect()
            assert bot.wait_for_session(GUARD).path.endswith("?token=abc")
        finally:
            client.close()
