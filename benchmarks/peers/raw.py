"""The floor: a socket and a thread that reads it. It checks nothing, and knows only the messages of the scenarios."""

from __future__ import annotations

import base64
import os
import socket
import threading
from typing import Final
from urllib.parse import urlsplit

from .base import LIMIT, MessagePeer

_READ_BYTES: Final = 1 << 16
_BINARY: Final = 0x82
_CLOSE: Final = 0x88


def _masked(first: int, payload: bytes) -> bytes:
    size = len(payload)
    head = bytes([first, 0x80 | size]) if size < 126 else bytes([first, 0xFE]) + size.to_bytes(2, "big")
    mask = os.urandom(4)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


class Raw(MessagePeer):
    """Many frames with each `recv()`; handlers run on the thread that reads."""

    package = "socket"

    def connect(self, timeout: float = LIMIT) -> None:
        url = urlsplit(self.url)
        assert url.hostname is not None
        assert url.port is not None
        self._socket = socket.create_connection((url.hostname, url.port), timeout)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):  # the server says nothing more until it is told that the client is ready
            head += self._socket.recv(_READ_BYTES)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.begin(timeout)

    def _read(self) -> None:
        rest = b""
        while True:
            data = rest + self._socket.recv(_READ_BYTES)
            position, end = 0, len(data)
            while end - position >= 4:
                begin, size = position + 2, data[position + 1]
                if size == 126:
                    begin, size = position + 4, int.from_bytes(data[position + 2 : position + 4], "big")
                if begin + size > end:
                    break
                if data[position] == _CLOSE:
                    return
                self.take(data[begin : begin + size])
                position = begin + size
            rest = data[position:]

    def _transmit(self, payload: bytes) -> None:
        self._socket.sendall(_masked(_BINARY, payload))

    def close(self) -> None:
        self.end()
        self._socket.sendall(_masked(_CLOSE, (1000).to_bytes(2, "big")))
        self._reader.join()
        self._socket.close()
