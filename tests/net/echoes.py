"""A server that returns the lines it receives, for tests of connections."""

from __future__ import annotations

from rtvi_sync.net.urls import parse_url


def echo(peer):
    """Send the received lines back, one at a time."""
    while True:
        peer.send(peer.read_until(b"\n"))


def ask(opened) -> bytes:
    """Return an echo server's answer over a connection that was just opened; then close it."""
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
