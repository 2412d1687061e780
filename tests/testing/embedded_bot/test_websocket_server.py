"""The WebSocket server of the embedded bot: the causes of a session's end."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed

from rtvi_sync.testing import EmbeddedBot
from tests.support.wire import (
    AudioRawFrame,
    MessageFrame,
    encode,
)

from .bot_client import RATE, Talk


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff\xff", id="garbage"),
        pytest.param("text", id="text-message"),
        pytest.param(encode(AudioRawFrame(audio=b"\1\2", sample_rate=RATE, num_channels=0)), id="no-channels"),
        pytest.param(
            encode(MessageFrame(data='{"label": "rtvi-ai", "type": "disconnect-bot", "id": "1"}')), id="disconnect-bot"
        ),
    ],
)
def test_what_ends_the_session(talk: Talk, data: bytes | str) -> None:
    """Undecodable frames and disconnect-bot close the session with 1000 and no reason."""
    with EmbeddedBot() as bot:
        client = talk(bot)
        client.connection.send(data)
        with pytest.raises(ConnectionClosed) as caught:
            client.receive()
        end = bot.wait_for_session().wait_ended()

    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1000, "")
    assert (end.code, end.initiator) == (1000, "server")


def test_a_client_that_leaves_during_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaves during the handshake is no fault, so that nothing is logged."""
    with EmbeddedBot() as bot:
        address = urlsplit(bot.ws_url)
        assert address.hostname is not None
        for request in (b"", b"GET / HT"):
            with socket.create_connection((address.hostname, address.port or 0)) as client:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                while client.recv(1024):
                    pass

    assert caplog.records == []
