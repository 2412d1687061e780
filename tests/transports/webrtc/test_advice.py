"""The advice in the errors of a connection that does not open."""

from __future__ import annotations

import errno
import socket

import pytest

from rtvi_sync.transports.webrtc import advice
from rtvi_sync.transports.webrtc.peer import ICEServer

pytestmark = pytest.mark.inside

HOST = "a=candidate:1 1 udp 2130706431 192.0.2.7 5000 typ host\r\n"
REFLEXIVE = "a=candidate:2 1 udp 1694498815 198.51.100.7 5000 typ srflx raddr 192.0.2.7 rport 5000\r\n"
RELAYED = "a=candidate:3 1 udp 16777215 203.0.113.7 5000 typ relay raddr 192.0.2.7 rport 5000\r\n"
STUN = ICEServer(urls=("stun:stun.example",))
TURN = ICEServer(urls=("turn:turn.example",), username="ada", credential="secret")


@pytest.mark.parametrize(
    ("offer", "servers", "said"),
    [
        (HOST, [], []),
        (HOST, [STUN], ["STUN"]),
        (HOST, [STUN, TURN], ["STUN", "TURN"]),
        (HOST + REFLEXIVE, [STUN, TURN], ["TURN"]),
        (HOST + REFLEXIVE + RELAYED, [STUN, TURN], []),
    ],
)
def test_servers_that_have_given_no_address(offer: str, servers: list[ICEServer], said: list[str]) -> None:
    """Each kind is named; addresses and secrets are not."""
    text = advice.for_step("ICE: a network packet from the bot", offer, HOST, servers)
    assert [name for name in ("STUN", "TURN") if f"No {name} server has given an address" in text] == said
    assert "the bot's: host" in text
    assert not any(word in text for word in ("192.0.2", "198.51", "203.0", "example", "ada", "secret"))


def test_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there is no address, the advice names the missing network, or the error of the socket."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    assert "no network but loopback" in advice.for_no_address()
    monkeypatch.setattr(socket, "socket", refuse)
    assert "Too many open files. Close files and connections" in advice.for_no_address()


def test_a_search_that_takes_long() -> None:
    """Without servers there is nothing to check."""
    assert advice.for_gathering([]) is None
    assert "Check the STUN and TURN servers" in str(advice.for_gathering([STUN]))


@pytest.mark.parametrize("step", ["the DTLS handshake", "the data channel"])
def test_a_bot_that_was_reached(step: str) -> None:
    """If the bot was reached, the advice does not blame a firewall."""
    text = advice.for_step(step, HOST, HOST, [])
    assert step in text
    assert "firewall" not in text
