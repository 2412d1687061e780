"""The behaviour that all transports share: the package's own, and the one in the samples."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

import pytest

from rtvi_sync import MemoryTransport, RTVIMessage
from rtvi_sync.testing.transport_contract import Bot, FarEnd, TransportContract
from tests.support.webrtc import FarLoop

from .far_ends import eval_route, lines, memory, telephony, webrtc, websocket


class Ours(TransportContract):
    """A far end with a port at which no server answers."""

    make: staticmethod

    @pytest.fixture(autouse=True)
    def _hang(self, hanging_port: int) -> None:
        self.hanging_port = hanging_port

    def far_end(self, bot: Bot) -> AbstractContextManager[FarEnd]:
        return self.make(bot, self.hanging_port)


class TestMemory(Ours):
    """`MemoryTransport`."""

    make = staticmethod(memory)
    test_given_up_while_connect_waits = None  # type: ignore[assignment]  # its connect() never waits


class HeardTransport(MemoryTransport):
    """A transport that carries no messages, to a bot that is ready when it is called."""

    carries_messages = False

    def send_ready_message(self) -> None:
        super().send_ready_message()
        self.receive(RTVIMessage("bot-ready", {"version": ""}))

    def send_message(self, message: RTVIMessage) -> None:
        raise AssertionError(f"it was given {message}")


class TestHeard(Ours):
    """A transport that carries no messages."""

    make = staticmethod(partial(memory, kind=HeardTransport))
    test_given_up_while_connect_waits = None  # type: ignore[assignment]  # its connect() never waits


class TestWebSocket(Ours):
    """`WebSocketTransport`."""

    make = staticmethod(websocket)


class TestEval(Ours):
    """`EvalTransport`."""

    make = staticmethod(eval_route)


class TestTelephony(Ours):
    """`TelephonyTransport`."""

    make = staticmethod(telephony)


class TestLines(Ours):
    """The transport of `samples/line_transport`."""

    make = staticmethod(lines)


class TestWebRTC(TransportContract):
    """`SmallWebRTCTransport`."""

    @pytest.fixture(autouse=True)
    def _hang(self, hanging_port: int, far_loop: FarLoop) -> None:
        self.hanging_port, self.loop = hanging_port, far_loop

    def far_end(self, bot: Bot) -> AbstractContextManager[FarEnd]:
        return webrtc(bot, self.hanging_port, self.loop)
