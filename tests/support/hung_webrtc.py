"""Attempts to connect over WebRTC that hang, one for each step of the negotiation."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs

from tests.support.loopback import Peer, Server, black_hole
from tests.support.slowness import GUARD
from tests.support.webrtc import RTCBot, unreachable

#: A name that is looked up without end while `hung_look_ups()` is active.
HANGS = "hangs.invalid"


@attrs.define
class Hung:
    """A bundle with which `connect()` hangs.

    Attributes:
        bundle: for `connect()`.
        step: the step that it waits for then.
        cure: the advice in the error.
        has_answer: the bot has answered the offer, so `ice_timeout` counts.
        is_ready_phase: the connection is open, and the bot is not ready.
    """

    bundle: dict[str, Any]
    step: str
    cure: str
    has_answer: bool = False
    is_ready_phase: bool = False


def _bundle(url: str, *servers: str) -> dict[str, Any]:
    ice = [{"urls": list(servers), "username": "ada", "credential": "secret"}]
    return {"webrtc_url": url, "iceConfig": {"iceServers": ice if servers else []}}


@contextmanager
def hung_look_ups() -> Iterator[None]:
    """Let the system's look-up of `HANGS` not return before the end."""
    release = threading.Event()

    def hanging(real: Callable[..., Any]) -> Callable[..., Any]:
        def look_up(host: Any, *arguments: Any, **keywords: Any) -> Any:
            if host != HANGS:
                return real(host, *arguments, **keywords)
            release.wait(GUARD)
            raise socket.gaierror("no such host")

        return look_up

    names = "getaddrinfo", "gethostbyname"
    real = [getattr(socket, name) for name in names]
    for name, function in zip(names, real, strict=True):
        setattr(socket, name, hanging(function))
    try:
        yield
    finally:
        release.set()
        for name, function in zip(names, real, strict=True):
            setattr(socket, name, function)


def _gathering(bot: RTCBot, server: str) -> Hung:
    return Hung(
        _bundle(f"{bot.url}/api/offer", server), "the addresses of this machine", "Check the STUN and TURN servers"
    )


@contextmanager
def stun(bot: RTCBot) -> Iterator[Hung]:
    """Ask a STUN server that does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield _gathering(bot, f"stun:127.0.0.1:{silent.getsockname()[1]}")


@contextmanager
def turn_udp(bot: RTCBot) -> Iterator[Hung]:
    """Ask a TURN server that does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        yield _gathering(bot, f"turn:127.0.0.1:{silent.getsockname()[1]}")


@contextmanager
def turn_tcp(bot: RTCBot) -> Iterator[Hung]:
    """Ask a TURN server that cannot be reached."""
    with black_hole() as port:
        yield _gathering(bot, f"turn:127.0.0.1:{port}?transport=tcp")


@contextmanager
def look_up(bot: RTCBot) -> Iterator[Hung]:
    """Ask a name server that does not answer."""
    yield _gathering(bot, f"stun:{HANGS}")


@contextmanager
def offer(bot: RTCBot) -> Iterator[Hung]:
    """Ask a server that does not answer the offer."""

    def serve(peer: Peer) -> None:
        peer.read_request()
        peer.hold()

    with Server(serve) as server:
        url = f"http://{server.authority}/api/offer"
        yield Hung(_bundle(url), f"an answer of {url} to the offer", "Check that the bot's address can be reached")


@contextmanager
def offer_tcp(bot: RTCBot) -> Iterator[Hung]:
    """Ask a server that cannot be reached."""
    with black_hole() as port:
        url = f"http://127.0.0.1:{port}/api/offer"
        yield Hung(_bundle(url), f"an answer of {url} to the offer", "Check that the bot's address can be reached")


_ICE = "ICE: a network packet from the bot"
_BLOCKED = "A firewall blocks UDP, or the bot is behind a NAT: give a TURN server"


@contextmanager
def ice(bot: RTCBot) -> Iterator[Hung]:
    """Ask a bot behind a firewall."""
    bot.change = unreachable
    yield Hung(_bundle(f"{bot.url}/api/offer"), _ICE, _BLOCKED, has_answer=True)


async def _never(*_: Any) -> None:
    await asyncio.Event().wait()


def _transports(pc: Any) -> set[Any]:
    return {transceiver.receiver.transport for transceiver in pc.getTransceivers()}


@contextmanager
def dtls(bot: RTCBot) -> Iterator[Hung]:
    """Ask a bot that lets the packets of DTLS be."""

    def spoil(pc: Any) -> None:
        for transport in _transports(pc):
            transport.start = _never

    bot.spoil = spoil
    yield Hung(_bundle(f"{bot.url}/api/offer"), "the DTLS handshake", "See the bot's log", has_answer=True)


@contextmanager
def sctp(bot: RTCBot) -> Iterator[Hung]:
    """Ask a bot that lets the packets of SCTP be."""

    def spoil(pc: Any) -> None:
        pc.sctp.start = _never

    bot.spoil = spoil
    yield Hung(_bundle(f"{bot.url}/api/offer"), "the data channel", "See the bot's log", has_answer=True)


@contextmanager
def bot_ready(bot: RTCBot) -> Iterator[Hung]:
    """Ask a bot that is never ready."""
    bot.answer = lambda _: []
    yield Hung(_bundle(f"{bot.url}/api/offer"), "", "A bot without RTVI", is_ready_phase=True)


STEPS = {
    step.__name__: step for step in (stun, turn_udp, turn_tcp, look_up, offer, offer_tcp, ice, dtls, sctp, bot_ready)
}
Step = Callable[[RTCBot], AbstractContextManager[Hung]]
