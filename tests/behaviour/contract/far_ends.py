"""Our transports, and the sample's, each with a bot at its other end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rtvi_sync import (
    CloseInfo,
    EvalTransport,
    MemoryTransport,
    RTVIMessage,
    SmallWebRTCTransport,
    TelephonyTransport,
    Transport,
    WebSocketTransport,
)
from rtvi_sync.testing import BotSession, EmbeddedBot
from rtvi_sync.testing.transport_contract import Bot, FarEnd
from samples.line_transport.transport import LineTransport
from tests.support.loopback import Peer, Server
from tests.support.webrtc import FarLoop, RTCBot, rtc_bot
from tests.support.wire import MessageFrame


class MemoryEnd(FarEnd):
    """A function in this process."""

    def __init__(self, bot: Bot, kind: type[MemoryTransport]) -> None:
        def answer(_: MemoryTransport, message: RTVIMessage) -> list[Any]:
            return bot(json.dumps(message.to_dict()))

        self.transport: MemoryTransport = kind(answer)

    def send(self, text: str) -> None:
        self.transport.receive(text)

    def end(self) -> None:
        self.transport.end(CloseInfo(code=1000, initiator="server"))

    def cut(self) -> None:
        self.transport.end()


@contextmanager
def memory(bot: Bot, _: int, kind: type[MemoryTransport] = MemoryTransport) -> Iterator[MemoryEnd]:
    yield MemoryEnd(bot, kind)


class WebSocketEnd(FarEnd):
    """A WebSocket server."""

    def __init__(self, server: EmbeddedBot, hanging_port: int, kind: Callable[[], Transport]) -> None:
        self.transport = kind()
        self.auth_bundle = {"ws_url": server.ws_url}
        self.hanging_bundle = {"ws_url": f"ws://127.0.0.1:{hanging_port}"}
        self._server = server

    @property
    def _session(self) -> BotSession:
        return self._server.sessions[-1]

    def send(self, text: str) -> None:
        self._session.send_frame(MessageFrame(data=text))

    def end(self) -> None:
        self._session.close()

    def cut(self) -> None:
        self._session.drop()


@contextmanager
def websocket(
    bot: Bot, hanging_port: int, kind: Callable[[], Transport] = WebSocketTransport
) -> Iterator[WebSocketEnd]:
    def handle(session: BotSession, message: dict[str, Any]) -> bool:
        for answer in bot(json.dumps(message)):
            session.send_frame(MessageFrame(data=answer))
        return True

    with EmbeddedBot(handler=handle) as server:
        yield WebSocketEnd(server, hanging_port, kind)


def eval_route(bot: Bot, hanging_port: int) -> AbstractContextManager[WebSocketEnd]:
    return websocket(bot, hanging_port, EvalTransport)


class PhoneEnd(WebSocketEnd):
    """A bot that is called by telephone."""

    def send(self, text: str) -> None:
        self._session.send_raw(text)


@contextmanager
def telephony(bot: Bot, hanging_port: int) -> Iterator[PhoneEnd]:
    with EmbeddedBot() as server:
        yield PhoneEnd(server, hanging_port, TelephonyTransport)


class LineEnd(FarEnd):
    """A TCP server."""

    def __init__(self, port: int, hanging_port: int, kind: type[LineTransport]) -> None:
        self.transport = kind()
        self.auth_bundle = {"url": f"tcp://127.0.0.1:{port}"}
        self.hanging_bundle = {"url": f"tcp://127.0.0.1:{hanging_port}"}
        self.sock: socket.socket | None = None
        self._sending = threading.Lock()

    def send(self, text: str) -> None:
        self.send_raw(text.encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        assert self.sock is not None
        with self._sending:
            self.sock.sendall(data)

    def end(self) -> None:
        assert self.sock is not None
        self.sock.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.send_raw(b'{"label":"rtvi-ai","ty')
        self.end()


@contextmanager
def lines(bot: Bot, hanging_port: int, kind: type[LineTransport] = LineTransport) -> Iterator[LineEnd]:
    def serve(peer: Peer) -> None:
        end.sock = peer.sock
        with peer.sock.makefile("rb") as received:
            for line in received:
                for answer in bot(line.decode()):
                    end.send(answer)

    with Server(serve) as server:
        end = LineEnd(server.port, hanging_port, kind)
        yield end


class WebRTCEnd(FarEnd):
    """A bot for WebRTC."""

    max_inbound = 262_144

    def __init__(self, bot: RTCBot, hanging_port: int) -> None:
        self.transport = SmallWebRTCTransport()
        self.auth_bundle = {"webrtc_url": f"{bot.url}/api/offer"}
        self.hanging_bundle = {"webrtc_url": f"http://127.0.0.1:{hanging_port}/api/offer"}
        self._bot = bot

    def send(self, text: str) -> None:
        self._bot.call.send(text)

    def end(self) -> None:
        self._bot.call.leave()

    def cut(self) -> None:
        self._bot.call.drop()


@contextmanager
def webrtc(bot: Bot, hanging_port: int, loop: FarLoop) -> Iterator[WebRTCEnd]:
    with rtc_bot(loop, bot) as far:
        yield WebRTCEnd(far, hanging_port)


FAR_ENDS: dict[str, Callable[[Bot, int], AbstractContextManager[FarEnd]]] = {
    "memory": memory,
    "websocket": websocket,
    "eval": eval_route,
    "lines": lines,
}
