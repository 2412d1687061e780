"""The data that engines receive: it contains secrets."""

from __future__ import annotations

import pytest

from rtvi_sync.transports.webrtc.peer import ICEServer, PeerStats

pytestmark = pytest.mark.inside


def test_a_server_hides_its_password():
    """The credential is not in the repr, which may be logged."""
    server = ICEServer(urls=("turn:host",), username="user", credential="secret")
    assert "secret" not in repr(server)


def test_counters_begin_at_zero():
    """Before the first measurement nothing is known."""
    assert PeerStats() == PeerStats(packets_received=0, jitter=None, round_trip=None)
