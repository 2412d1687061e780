"""Protocols between the classes of a conversation, and the messenger through which they send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.script import Message, message

MessageHandler: TypeAlias = Callable[[Message], None]


class HandlerProvider(Protocol):
    """A class with handlers of some types of messages, which are called on the thread of the session."""

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Return the handlers by type of message."""


class ReplyControl(Protocol):
    """The control of the bot's speech by config and actions."""

    def stop_speaking(self) -> None:
        """Stop the current reply without reporting an interruption."""

    def respond(self) -> None:
        """Run the language model on the context and play its reply."""

    def say(self, text: str) -> None:
        """Speak a text that is not from the language model."""


class Messenger:
    """A sender of messages to one client, which drops those that bots of its version do not send. Any thread may send.

    Args:
        bot_version: decides which messages are sent.
        send: sends one; raises DisconnectedError when the connection has ended.

    Attributes:
        bot_version: as given.
        generation: of the `bot-output` that the client gets; the handshake may change it.
    """

    def __init__(self, bot_version: BotVersion, send: Callable[[Message], None]) -> None:
        self.bot_version: Final = bot_version
        self.generation: int = bot_version.generation
        self._send = send

    def send(self, sent: Message) -> None:
        """Send a message if bots of this version send its type."""
        if self.bot_version.sends(sent["type"]):
            self._send(sent)

    def emit(self, type: str, data: Any = None, id: str | None = None) -> None:
        """Build a message and send it if bots of this version send its type."""
        self.send(message(type, data, id))

    def send_error_response(self, received: Message, error: str) -> None:
        """Answer a message with an `error-response`."""
        self.emit("error-response", {"error": error}, received["id"])

    def send_error(self, text: str) -> None:
        """Send an `error`, which answers no message."""
        self.emit("error", {"error": text, "fatal": False})
