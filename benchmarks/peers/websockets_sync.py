"""The synchronous client of `websockets`, and a thread that reads from it."""

from __future__ import annotations

import threading

from websockets.sync.client import connect

from .base import LIMIT, MessagePeer


class WebsocketsSync(MessagePeer):
    """Handlers run on the thread that reads; the library has one more, which feeds it."""

    imports = (
        "json, threading, websockets.sync.client, google.protobuf.descriptor_pool, google.protobuf.message_factory"
    )

    def connect(self, timeout: float = LIMIT) -> None:
        self._connection = connect(self.url, open_timeout=timeout, compression=None)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.begin(timeout)

    def _read(self) -> None:
        for payload in self._connection:  # until it is closed
            assert isinstance(payload, bytes)
            self.take(payload)

    def _transmit(self, payload: bytes) -> None:
        self._connection.send(payload)

    def close(self) -> None:
        self.end()
        self._connection.close()
        self._reader.join()
