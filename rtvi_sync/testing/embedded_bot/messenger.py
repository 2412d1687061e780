"""What the parts of a conversation have to do with each other, and the line that they send through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.script import Message, message

MessageHandler: TypeAlias = Callable[[Message], None]


class HandlerProvider(Protocol):
    """A part of a conversation: it deals with some types of messages, on the thread of the session."""

    @property
    def handlers(self) -> Mapping[str, MessageHandler]: ...


class ReplyControl(Protocol):
    """What config and actions make the bot do."""

    def stop_speaking(self) -> None:
        """Stop what is being said, without a word about an interruption."""

    def respond(self) -> None:
        """Run the language model on the context, and say what it answers."""

    def say(self, text: str) -> None:
        """Say a text that is not from the language model."""


class Messenger:
    """The way of messages to one client: leaves out what bots of its version do not send. Any thread may send.

    Args:
        mode: decides which messages there are.
        send: sends one; raises DisconnectedError when the connection has ended.

    Attributes:
        mode: the same.
        generation: whose `bot-output` the client gets; the handshake may change it.
    """

    def __init__(self, bot_version: BotVersion, send: Callable[[Message], None]) -> None:
        self.bot_version: Final = bot_version
        self.generation: int = bot_version.generation
        self._send = send

    def send(self, sent: Message) -> None:
        """Send a message, if bots of this version send such."""
        if self.bot_version.sends(sent["type"]):
            self._send(sent)

    def emit(self, type: str, data: Any = None, id: str | None = None) -> None:
        """Send a message made of these parts, if bots of this version send such."""
        self.send(message(type, data, id))

    def send_error_response(self, received: Message, error: str) -> None:
        """Answer a message with an error-response."""
        self.emit("error-response", {"error": error}, received["id"])

    def error(self, text: str) -> None:
        """Tell of an error that answers no message."""
        self.emit("error", {"error": text, "fatal": False})
