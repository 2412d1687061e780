"""Objects whose methods are called in vain: none has a session, a thread or a connection to a bot."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pytest

from rtvi_sync import (
    AbortController,
    LLMHelper,
    MemoryTransport,
    PendingTurn,
    RTVIClient,
    RTVIError,
    SmallWebRTCTransport,
    Turn,
)
from rtvi_sync.concurrency.deadline import Deadline
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.testing import BotSession, EmbeddedBot, FaultProxy, Injection, MeasuredClient, ProxyConnection, Report
from rtvi_sync.testing.embedded_bot.messages import NEWEST, BotVersion
from rtvi_sync.testing.embedded_bot.reply import LLMContext
from rtvi_sync.testing.embedded_bot.services import LiveConfig
from rtvi_sync.testing.embedded_bot.session import SessionState
from rtvi_sync.testing.fault_injection.fault_connection import TargetAddress
from rtvi_sync.testing.faults import Reset


def perform(change: Callable[[], object]) -> None:
    """Make a change at once, as the thread of a proxy does."""
    change()


def pending_turn(turn: Turn) -> PendingTurn:
    """Return the answer to a `barge_in()`, which needs a session otherwise."""
    pending = PendingTurn.__new__(PendingTurn)
    pending._turn = turn
    return pending


class NoLink:
    """The connection of a session that has none."""

    path = "/"
    headers: Mapping[str, str] = {}

    def send(self, data: bytes | str) -> None:
        raise DisconnectedError("there is no connection")

    def receive(self, timeout: float | None) -> bytes | str:
        raise DisconnectedError("there is no connection")

    def close(self, code: int, reason: str) -> None: ...

    def drop(self) -> None: ...


class Targets(ExitStack):
    """Makes targets; leaving the context closes the ones that need it."""

    def client(self) -> RTVIClient:
        client = RTVIClient(transport=MemoryTransport())
        client.close()  # so that no valid call starts anything
        return client

    def measured(self) -> MeasuredClient:
        client = MeasuredClient(transport=MemoryTransport())
        client.close()
        return client

    def helper(self) -> LLMHelper:
        helper = LLMHelper()
        self._client = self.client()
        return self._client.register_helper("llm", helper)

    def abort(self) -> AbortController:
        return AbortController(Deadline(None), lambda: RTVIError("aborted"))

    def transport(self) -> MemoryTransport:
        return MemoryTransport()

    def webrtc(self) -> SmallWebRTCTransport:
        pytest.importorskip("aiortc")
        return SmallWebRTCTransport()

    def bot(self) -> EmbeddedBot:
        return EmbeddedBot()

    def session(self) -> BotSession:
        session = BotSession(
            NoLink(),
            SessionState(bot_version=BotVersion(NEWEST), config=LiveConfig([], {}, None), context=LLMContext(())),
        )
        session.finish(DisconnectedError("it has ended"))
        return session

    def proxy(self) -> FaultProxy:
        return FaultProxy("127.0.0.1", 9)

    def injection(self) -> Injection:
        return Injection(Reset(), (), perform)

    def connection(self) -> ProxyConnection:
        client, _ = pair = socket.socketpair()
        server = self.enter_context(socket.create_server(("127.0.0.1", 0)))
        selector = self.enter_context(selectors.DefaultSelector())
        addresses = [TargetAddress(socket.AF_INET, server.getsockname())]
        connection = ProxyConnection(client, addresses, selector, perform)
        self.callback(connection.close)
        for end in pair:
            self.enter_context(end)
        return connection

    def report(self) -> Report:
        return Report(rows=(), seconds=0.0)

    def socket(self) -> socket.socket:
        return self.enter_context(socket.socket())
