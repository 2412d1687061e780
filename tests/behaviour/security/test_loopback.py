"""Servers for tests and demonstrations listen to this machine only."""

from __future__ import annotations

import ipaddress
import os

import psutil
import pytest

from rtvi_sync.testing import EmbeddedBot, FaultProxy
from tests.support.clients import websocket_client


def listening() -> set[tuple[str, int]]:
    """Return the addresses and ports at which this process listens."""
    lines = psutil.Process(os.getpid()).net_connections(kind="inet")
    return {(line.laddr.ip, line.laddr.port) for line in lines if line.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("what", ["bot", "proxy"])
def test_it_listens_on_the_loopback_interface(what: str) -> None:
    """Unless the program names another address, every port of the embedded bot and of the fault proxy is local."""
    before = listening()
    with EmbeddedBot() if what == "bot" else FaultProxy("127.0.0.1", 9):
        opened = listening() - before
    assert len(opened) == (2 if what == "bot" else 1)
    assert all(ipaddress.ip_address(address).is_loopback for address, _ in opened)
    assert listening() == before


def test_a_client_listens_to_nobody() -> None:
    """No part of a client opens a port."""
    with EmbeddedBot() as bot:
        before = listening()
        with websocket_client(bot) as client:
            assert client.connected
            assert listening() == before
