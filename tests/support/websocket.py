"""The far end of a WebSocket: frames, the answer to the opening handshake, and a bot that reads and writes frames."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import ssl
import struct

from websockets.frames import Frame, Opcode

from tests.support.loopback import Peer, Server, serving, trusting
from tests.support.slowness import GUARD
from tests.support.threads import running

MB = 1024 * 1024
TEXT, BINARY, CONT, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bool = False, bits: int = 0) -> bytes:
    """Return a frame as a server sends it (or, with `mask` or reserved `bits`, must not), made by `websockets`."""
    data = Frame(Opcode(opcode), payload, fin=fin).serialize(mask=mask, extensions=())
    return bytes([data[0] | bits]) + data[1:]


def header(opcode: int, length: int, *, fin: bool = True) -> bytes:
    """Return only the header of a frame, with the longest form of its length."""
    return bytes([opcode | (0x80 if fin else 0), 127]) + struct.pack("!Q", length)


def close_frame(code: int, reason: bytes = b"") -> bytes:
    return frame(CLOSE, struct.pack("!H", code) + reason)


class Bot:
    """The other end of a connection: reads and writes frames, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(GUARD)
        self.sock = sock

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.sock.recv(min(size, 65536))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self) -> tuple[int, bytes]:
        """Return opcode and payload of the next frame, which has to be masked and whole."""
        first, second = self.read(2)
        assert first & 0xF0 == 0x80
        assert second & 0x80
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self.read(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.read(8))
        mask = self.read(4)
        data = int.from_bytes(self.read(length), "big")
        whole = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
        return first & 0x0F, (data ^ whole).to_bytes(length, "big")

    def reset(self) -> None:
        """Break the connection without a word."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def at_end(self) -> bool:
        """Wait for the end of the stream; return False if more data arrives first."""
        try:
            return self.sock.recv(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True


def tcp_pair(tls: bool, context: ssl.SSLContext | None = None) -> tuple[socket.socket, socket.socket]:
    """Return two ends of a TCP connection, in TLS if wanted, with a context of the client's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    if not tls:
        return ours, theirs
    with running(lambda: serving().wrap_socket(theirs, server_side=True)) as handshake:
        ours = (context or trusting()).wrap_socket(ours, server_hostname="127.0.0.1")
        return ours, handshake.get()


def accept_of(head: str) -> str:
    """Return the value that proves that the server has understood the request."""
    key = re.search(r"^Sec-WebSocket-Key: (.*?)\r$", head, re.MULTILINE)
    assert key is not None
    return base64.b64encode(hashlib.sha1(f"{key[1]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()


def upgrade(peer: Peer, *headers: str, after: bytes = b"") -> str:
    """Accept a WebSocket; the head of the request."""
    head = peer.read_head()
    accept(peer, head, *headers, after=after)
    return head


def accept(peer: Peer, head: str, *headers: str, after: bytes = b"") -> None:
    """Answer `head`, the request of a WebSocket."""
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {accept_of(head)}", *headers, "", ""]
    peer.send("\r\n".join(lines).encode("latin-1") + after)


class Acceptor(Server):
    """Accepts every WebSocket and keeps the heads of the requests."""

    def __init__(self, *headers: str, after: bytes = b"", **options) -> None:
        super().__init__(self._accept_one, **options)
        self._headers, self._after = headers, after
        self.heads: list[str] = []

    def _accept_one(self, peer: Peer) -> None:
        # Kept before the answer: after it the next client connects, whose thread would keep its head beside this one.
        head = peer.read_head()
        self.heads.append(head)
        accept(peer, head, *self._headers, after=self._after)
        peer.wait_for_end()


def lines_of(head: str) -> dict[str, list[str]]:
    """Return the values of each header of a request, by its name in lower case."""
    fields: dict[str, list[str]] = {}
    for line in head.split("\r\n")[1:-2]:
        name, _, value = line.partition(": ")
        fields.setdefault(name.lower(), []).append(value)
    return fields
