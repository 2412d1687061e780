"""A server that sends back what it gets, for tests of connections."""

from __future__ import annotations

from rtvi_sync.net.urls import parse_url


def echo(peer):
    """Send back what comes, one line at a time."""
    while True:
        peer.send(peer.read_until(b"\n"))


def ask(opened) -> bytes:
    """Return what an echo server answers over a connection that was just opened; then close it."""
    sock, detach = opened
    with sock:
        sock.sendall(b"hello\n")
        answer = sock.recv(100)
        detach()
    return answer


def websocket_url(text):
    """Return a URL that is valid."""
    url = parse_url(text, "ws", "wss")
    assert url is not None
    return url
