"""The reference: the simplest correct client of threads. websocket-client, one thread that reads and calls handlers."""

from __future__ import annotations

import threading

import websocket

from .base import LIMIT, MessagePeer


class Ref(MessagePeer):
    """Reads with `websocket.WebSocket` on a thread; handlers run there."""

    package = "websocket"

    def connect(self, timeout: float = LIMIT) -> None:
        self._socket = websocket.create_connection(self.url, timeout=timeout)
        self._socket.settimeout(None)  # with one every call would poll first
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.begin(timeout)

    def _read(self) -> None:
        while True:
            opcode, payload = self._socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_BINARY:
                self.take(payload)
            elif opcode == websocket.ABNF.OPCODE_CLOSE:
                return

    def _transmit(self, payload: bytes) -> None:
        self._socket.send_binary(payload)

    def close(self) -> None:
        self.end()
        self._socket.send_close()
        self._reader.join()
        self._socket.shutdown()  # type: ignore[no-untyped-call]
