"""A transport inside the process: the bot is a function. For tests of programs and of this package."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from ..concurrency.cancel import AbortSignal
from ..errors import DisconnectedError
from ..messages import RTVIMessage
from ..protocol.states import CloseInfo
from .base import Inbound, Transport

Bot = Callable[["MemoryTransport", RTVIMessage], Iterable[Inbound] | None]


def ready_bot(transport: MemoryTransport, message: RTVIMessage) -> Iterable[Inbound]:
    """A bot that is ready at once and answers a client-message with its own data."""
    if message.type == "client-ready":
        about = {"library": "memory", "library_version": "1"}
        yield RTVIMessage("bot-ready", {"version": "2.2.0", "about": about}, message.id)
    elif message.type == "client-message":
        yield RTVIMessage("server-response", message.data, message.id)
    elif message.type == "disconnect-bot":
        transport.end(CloseInfo(code=1000, initiator="server"))


class MemoryTransport(Transport):
    """Hands each message to `bot`, on the thread that sends it, and what `bot` yields to the client.

    Args:
        bot: called with the transport and the message; returns the bot's messages or None.
    """

    name = "memory"

    def __init__(self, bot: Bot = ready_bot) -> None:
        self._bot = bot
        self.sent: list[RTVIMessage] = []
        self.auth_bundle: Any = None
        self._open = threading.Event()

    def connect(self, auth_bundle: Any, abort: AbortSignal) -> None:
        abort.raise_if_aborted()
        self.auth_bundle = auth_bundle
        self._open.set()

    def disconnect(self) -> None:
        self._open.clear()

    def send_message(self, message: RTVIMessage) -> None:
        self.serialize(message)
        if not self._open.is_set():
            raise DisconnectedError("The memory transport is not connected", initiator="client")
        self.sent.append(message)
        for answer in self._bot(self, message) or ():
            self.on_message(answer)

    def receive(self, message: Inbound) -> None:
        """Deliver a message as if the bot had sent it. One thread at a time."""
        self.on_message(message)

    def end(self, info: CloseInfo | None = None) -> None:
        """End the connection from the bot's side."""
        self._open.clear()
        self.options.on_closed(info or CloseInfo(initiator="network"))
