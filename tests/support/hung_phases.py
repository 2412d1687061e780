"""Attempts to connect that hang, one for each phase."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import attrs
import psutil
import pytest

from rtvi_sync import (
    RTVIClient,
    WebSocketTransport,
)
from rtvi_sync.media import NullSink, SilenceSource
from rtvi_sync.testing import EmbeddedBot
from tests.support.attempts import connect_within
from tests.support.clients import manager_of, memory_client
from tests.support.loopback import Peer, Server, black_hole
from tests.support.slowness import GUARD
from tests.support.threads import own_threads
from tests.support.waiting import until


class HungSource(SilenceSource):
    """A source that hangs when it is asked for its sample rate, until the test lets it go."""

    hung = threading.Event()
    release = threading.Event()

    @property
    def sample_rate_hz(self) -> int:
        self.hung.set()
        self.release.wait(GUARD)
        return 16000


@attrs.define
class Hung:
    """A client whose `connect()` hangs in one phase.

    Attributes:
        client: made without a limit unless the test gives one.
        phase: its name in the error.
        reached: waits until it hangs.
        heal: makes the next `connect()` work.
        release: releases the hanging step; None: the package cancels it.
    """

    client: RTVIClient
    phase: str
    reached: Callable[[], Any]
    heal: Callable[[], Any]
    release: Callable[[], Any] | None = None

    def connect_healed(self) -> None:
        """Connect to the healed bot, however long that takes."""
        self.heal()
        connect_within(self.client)


def _drip(peer: Peer, byte: bytes) -> None:
    """Send a byte now and then, which defeats a limit per read."""
    while not peer.server.stopping.wait(0.05):
        peer.send(byte)


@contextmanager
def hung_devices(**options: Any) -> Iterator[Hung]:
    HungSource.hung.clear()
    HungSource.release.clear()
    with EmbeddedBot() as bot:
        client = RTVIClient(transport=WebSocketTransport(bot.ws_url), mic=HungSource(), speaker=NullSink(), **options)

        def release() -> None:
            HungSource.release.set()
            until(lambda: not own_threads())

        try:
            yield Hung(client, "devices", lambda: HungSource.hung.wait(GUARD), release, release)
        finally:
            release()


@contextmanager
def _http(port: int, reached: Callable[[], Any], **options: Any) -> Iterator[Hung]:
    client = memory_client(params={"base_url": f"http://127.0.0.1:{port}"}, **options)

    def heal() -> None:
        client.params.base_url = None

    yield Hung(client, "http", reached, heal)


def knocks(port: int) -> bool:
    """Return whether this process waits for an answer to a SYN that it has sent to a port."""
    found = psutil.Process().net_connections("tcp4")
    return any(c.status == psutil.CONN_SYN_SENT and c.raddr and c.raddr.port == port for c in found)


@contextmanager
def tcp_black_hole(**options: Any) -> Iterator[Hung]:
    with black_hole() as port, _http(port, lambda: None, **options) as hung:
        hung.reached = lambda: until(lambda: knocks(port))
        yield hung


@contextmanager
def http_headers(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-")
        asked.set()
        peer.hold()

    with Server(serve) as server, _http(server.port, lambda: asked.wait(GUARD), **options) as hung:
        yield hung


@contextmanager
def http_body(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        asked.set()
        _drip(peer, b" ")

    with Server(serve) as server, _http(server.port, lambda: asked.wait(GUARD), **options) as hung:
        yield hung


@contextmanager
def http_tls(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.read(1)
        asked.set()
        peer.hold()

    with Server(serve) as server, _http(server.port, lambda: asked.wait(GUARD), **options) as hung:
        hung.client.params.base_url = f"https://127.0.0.1:{server.port}"
        yield hung


@contextmanager
def _websocket(url: str, reached: Callable[[], Any], phase: str = "transport", **options: Any) -> Iterator[Hung]:
    with EmbeddedBot() as bot:
        client = RTVIClient(transport=WebSocketTransport(), mic=SilenceSource(), speaker=NullSink(), **options)
        client.params.base_url = "http://unused.invalid"
        client.params.endpoints.connect = None
        targets = [url]

        def handler(*_: Any) -> Any:
            return {"ws_url": targets[0]}

        manager_of(client)._options.custom_connect_handler = handler

        def heal() -> None:
            targets[0] = bot.ws_url

        yield Hung(client, phase, reached, heal)


@contextmanager
def websocket_tcp(**options: Any) -> Iterator[Hung]:
    with black_hole() as port, _websocket(f"ws://127.0.0.1:{port}/", lambda: None, **options) as hung:
        hung.reached = lambda: until(lambda: knocks(port))
        yield hung


@contextmanager
def websocket_tls(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.read(1)
        asked.set()
        peer.hold()

    with (
        Server(serve) as server,
        _websocket(f"wss://127.0.0.1:{server.port}/", lambda: asked.wait(GUARD), **options) as hung,
    ):
        yield hung


@contextmanager
def websocket_handshake(**options: Any) -> Iterator[Hung]:
    asked = threading.Event()

    def serve(peer: Peer) -> None:
        peer.read_head()
        asked.set()
        peer.send(b"HTTP/1.1 101 Switching Protocols\r\nX: ")
        _drip(peer, b"H")

    with (
        Server(serve) as server,
        _websocket(f"ws://127.0.0.1:{server.port}/", lambda: asked.wait(GUARD), **options) as hung,
    ):
        yield hung


@contextmanager
def bot_ready(**options: Any) -> Iterator[Hung]:
    with (
        EmbeddedBot(ready=False) as bot,
        _websocket(
            bot.ws_url, lambda: bot.wait_for_session().wait_for_message("client-ready"), "bot-ready", **options
        ) as hung,
    ):
        yield hung


@contextmanager
def name_look_up(**options: Any) -> Iterator[Hung]:
    looked, release = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def look_up(host: Any, *arguments: Any, **keywords: Any) -> Any:
        if host != b"hangs.invalid":
            return real(host, *arguments, **keywords)
        looked.set()
        release.wait(GUARD)
        raise socket.gaierror("no such host")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", look_up)
        with _http(1, lambda: looked.wait(GUARD), **options) as hung:
            hung.client.params.base_url = "http://hangs.invalid"
            hung.release = release.set
            try:
                yield hung
            finally:
                release.set()
                until(lambda: not own_threads())


PHASES = [
    hung_devices,
    name_look_up,
    tcp_black_hole,
    http_tls,
    http_headers,
    http_body,
    websocket_tcp,
    websocket_tls,
    websocket_handshake,
    bot_ready,
]
HangingPhase = Callable[..., AbstractContextManager[Hung]]
