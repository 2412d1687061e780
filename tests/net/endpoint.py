"""HTTP servers for the tests of requests: their answers and their delays."""

from __future__ import annotations

import functools
import gzip
import select

from tests.support.loopback import Server


class Endpoint(Server):
    """An HTTP server that answers one request per connection by `respond(peer, head, body)` and keeps all of them."""

    def __init__(self, respond, **options) -> None:
        super().__init__(self._answer, **options)
        self._respond = respond
        self.requests: list[tuple[str, bytes]] = []

    def _answer(self, peer) -> None:
        request = peer.read_request()
        self.requests.append(request)
        self._respond(peer, *request)

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://{self.authority}/connect"


def answering(body: bytes = b"{}", status: str = "200 OK", *headers: str):
    """Return a response that is always the same."""
    return lambda peer, *_: peer.answer(status, body, *headers)


@functools.cache
def bomb() -> bytes:
    """Return 64 MB of zeros in 300 bytes."""
    return gzip.compress(gzip.compress(bytes(2**26)))


def silent(peer, *_):
    """Answer nothing at all."""
    peer.server.reached.set()
    peer.hold()


def silent_body(peer, *_):
    """Send the head of an answer without ever sending its body."""
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    peer.server.reached.set()
    peer.hold()


def drip(peer, *_):
    """Send a byte now and then, for ever."""
    peer.server.reached.set()
    while not select.select([peer.sock], [], [], 0.01)[0]:
        peer.send(b"x")


def dripping_head(peer, *_):
    """Send a header byte by byte, without an end."""
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    drip(peer)


def dripping_body(peer, *_):
    """Send a body byte by byte, without an end."""
    peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
    drip(peer)


PHASES = [silent, silent_body, dripping_head, dripping_body]


def silent_refusal(peer, *_):
    """Send a refusal whose body is never complete."""
    peer.send(b'HTTP/1.1 401 No\r\nContent-Length: 99\r\n\r\n{"detail":')
    peer.server.reached.set()
    peer.hold()


def broken_refusal(peer, *_):
    """Send a refusal whose body breaks off."""
    peer.send(b'HTTP/1.1 401 No\r\nContent-Length: 99\r\n\r\n{"detail":')


def dripping_refusal(peer, *_):
    """Send a refusal whose body arrives byte by byte and never ends."""
    peer.send(b"HTTP/1.1 401 No\r\n\r\n")
    drip(peer)


def dripping_chunk(peer, *_):
    """Send a refusal without any of its body: the head of its first chunk never ends."""
    peer.send(b"HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n5;")
    drip(peer)
