"""The output of `rtvi-sync doctor --json`, and the servers that it examines, each with one fault."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

from rtvi_sync.testing import EmbeddedBot
from tests.support.loopback import Peer, Server, serving
from tests.support.websocket import accept, close_frame

IDS = [
    *("port", "http", "tls", "path", "token", "entry", "eval", "rtvi", "version", "greeting", "answer"),
    *(
        "function_reporting",
        "audio_out",
        "audio_in",
        "mute",
        "vad",
        "interruption",
        "ping",
        "timing",
        "limits",
        "local",
    ),
]


class Examined:
    """The JSON of the command, and its exit status."""

    def __init__(self, status: int, document: dict[str, Any]) -> None:
        self.status = status
        self.document = document
        self.checks = {check["id"]: check for check in document["checks"]}

    @property
    def first(self) -> str:
        """Return the first id that has failed, or else the first with a warning; "" without one."""
        found = {check["status"]: name for name, check in reversed(self.checks.items())}
        return found.get("fail", found.get("warn", ""))

    def assert_first(self, first: str, finding: str, cure: str) -> None:
        """Assert which check is the first that is not all right, its report, and the exit status."""
        assert self.first == first
        check = self.checks[first]
        assert finding in check["finding"]
        assert cure in check["cure"]
        assert (self.status, self.document["ok"]) == ((1, False) if check["status"] == "fail" else (0, True))


@contextlib.contextmanager
def start_endpoint(status: str, body: Any = None) -> Iterator[str]:
    """Yield the URL of a server that answers every request alike."""

    def answer(peer: Peer) -> None:
        peer.read_request()
        peer.answer(status, json.dumps(body or {}).encode())

    with Server(answer) as server:
        yield f"http://{server.authority}"


@contextlib.contextmanager
def runner(path: str, websocket: Callable[[Peer, str], object]) -> Iterator[str]:
    """Yield the URL of a server with a start endpoint, and with a WebSocket whose behaviour the test defines."""

    def serve(peer: Peer) -> None:
        head, _ = peer.read_request()
        if head.startswith("POST "):
            peer.answer("200 OK", json.dumps({"wsUrl": f"ws://{peer.server.authority}{path}"}).encode())
        else:
            websocket(peer, head)

    with Server(serve) as server:
        yield f"http://{server.authority}"


def refuses(status: str) -> Callable[[Peer, str], None]:
    """Return a handler that refuses a WebSocket."""
    return lambda peer, _: peer.answer(status)


def closes(code: int) -> Callable[[Peer, str], None]:
    """Return a handler that accepts a WebSocket and closes it."""

    def close(peer: Peer, head: str) -> None:
        accept(peer, head, after=close_frame(code))
        peer.wait_for_end()

    return close


@contextlib.contextmanager
def nothing() -> Iterator[str]:
    """Yield the URL of a port at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextlib.contextmanager
def hanging() -> Iterator[str]:
    """Yield the URL of a server that takes requests and answers none."""
    with Server(lambda peer: peer.hold()) as server:
        yield f"http://{server.authority}"


@contextlib.contextmanager
def hanging_websocket() -> Iterator[str]:
    """Yield the URL of a WebSocket whose handshake is not answered."""
    with Server(lambda peer: peer.hold()) as server:
        yield f"ws://{server.authority}/ws"


@contextlib.contextmanager
def without_tls() -> Iterator[str]:
    """Yield the URL of a server that advertises wss:// on another port, which has no TLS."""

    def plain(peer: Peer) -> None:
        peer.sock.recv(65536)
        peer.answer("400 Bad Request")

    with Server(plain) as other, start_endpoint("200 OK", {"wsUrl": f"wss://{other.authority}/ws-client"}) as url:
        yield url


@contextlib.contextmanager
def untrusted() -> Iterator[str]:
    """Yield the URL of a server whose certificate is not trusted."""
    with Server(lambda peer: peer.hold(), tls=serving()) as server:
        yield f"https://{server.authority}"


@contextlib.contextmanager
def a_bot(**options: Any) -> Iterator[str]:
    """Yield the URL of an embedded bot, which speaks first."""
    with EmbeddedBot(**{"greeting": "Good day.", **options}) as bot:
        yield bot.base_url
