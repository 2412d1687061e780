"""The speed of C: picows on uvloop's loop with orjson, and a thread around them for programs that are not of
asyncio."""

from __future__ import annotations

import orjson
import uvloop
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from .base import FRAME, LIMIT, MessagePeer, Talk
from .loops import LoopPace, run, running_loop


class _Listener(WSListener):  # type: ignore[misc]
    """Called by the loop."""

    def __init__(self, peer: Picows) -> None:
        self._peer = peer
        self._begun = b""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.BINARY or frame.msg_type == WSMsgType.CONTINUATION:
            if frame.fin and not self._begun:
                self._peer.take(frame.get_payload_as_memoryview())
                return
            self._begun += frame.get_payload_as_bytes()
            if frame.fin:
                whole, self._begun = self._begun, b""
                self._peer.take(whole)
        elif frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()


class Picows(MessagePeer):
    """Handlers run on the loop's thread."""

    package = "picows"
    loads = staticmethod(orjson.loads)

    def connect(self, timeout: float = LIMIT) -> None:
        self._loop = running_loop(uvloop.new_event_loop)
        self._transport, _ = run(
            ws_connect(lambda: _Listener(self), self.url, websocket_handshake_timeout=timeout), self._loop
        )
        self.begin(timeout)

    def _begin_to_talk(self) -> Talk:
        if self.on_audio is not None:
            return super()._begin_to_talk()
        return LoopPace(lambda: self._transport.send(WSMsgType.BINARY, self._audio_payload(FRAME)), self._loop)

    def _transmit(self, payload: bytes) -> None:
        self._loop.call_soon_threadsafe(self._transport.send, WSMsgType.BINARY, payload)

    def close(self) -> None:
        self.end()
        run(self._leave(), self._loop)

    async def _leave(self) -> None:
        self._transport.send_close(WSCloseCode.OK)
        await self._transport.wait_disconnected()
