"""A client of a real bot that is not the SDK's: a connection that keeps all that it received."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.support.protobuf import AudioRawFrame, Frame, MessageFrame, decode, encode

READY = {"version": "2.2.0", "about": {"library": "raw client"}}
CHUNK_BYTES = 1280
RATE_HZ = 16000


class RawClient:
    """A connection that keeps everything it received, in order: RTVI messages as dicts, other frames as they are."""

    def __init__(self, ws_url: str, **options: Any) -> None:
        self._connection = connect(ws_url, proxy=None, compression=None, max_size=None, **options)
        self.received: list[Any] = []

    def __enter__(self) -> RawClient:
        self._socket = self._connection.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._connection.__exit__(kind, error, tb)

    def send(self, type_: str, data: Any = None, id_: str = "1") -> None:
        """Send an RTVI message."""
        message = {"id": id_, "label": "rtvi-ai", "type": type_, "data": data}
        self._send_frame(MessageFrame(data=json.dumps(message)))

    def send_audio(self, pcm: bytes) -> None:
        """Send 16 kHz mono, all at once, in frames of 40 ms."""
        for start in range(0, len(pcm), CHUNK_BYTES):
            self._send_frame(AudioRawFrame(audio=pcm[start : start + CHUNK_BYTES], sample_rate=RATE_HZ))

    def get_ready(self) -> dict[str, Any]:
        """Shake hands; return bot-ready."""
        self.send("client-ready", READY, "ready")
        return self.until_type("bot-ready")

    def until(self, accept: Callable[[Any], bool]) -> Any:
        """Receive until something is accepted; return that."""
        while True:
            frame = decode(self._socket.recv(10))
            item = json.loads(frame.data) if isinstance(frame, MessageFrame) else frame
            self.received.append(item)
            if accept(item):
                return item

    def until_type(self, type_: str) -> dict[str, Any]:
        """Receive until an RTVI message of this type; return it."""
        message: dict[str, Any] = self.until(lambda item: isinstance(item, dict) and item["type"] == type_)
        return message

    def until_closed(self) -> ConnectionClosed:
        """Receive until the connection is closed; return how it was."""
        with pytest.raises(ConnectionClosed) as closed:
            self.until(lambda item: False)
        return closed.value

    def messages(self, *types: str) -> list[dict[str, Any]]:
        """Return the RTVI messages received so far that have one of these types."""
        return [item for item in self.received if isinstance(item, dict) and item["type"] in types]

    def audio(self) -> list[AudioRawFrame]:
        """Return the audio received so far."""
        return [item for item in self.received if isinstance(item, AudioRawFrame)]

    def _send_frame(self, frame: Frame) -> None:
        self._socket.send(encode(frame))
