"""A conversation of the embedded bot: its parts, and who of them deals with what the client sends."""

from __future__ import annotations

import logging
from typing import Any

from rtvi_sync.errors import DisconnectedError, ProtocolError
from rtvi_sync.protocol.frames import AudioRawFrame, MessageFrame, TranscriptionFrame
from rtvi_sync.testing.embedded_bot.actions import ActionHandlers, ActionRegistry
from rtvi_sync.testing.embedded_bot.client_messages import ClientMessageHandlers
from rtvi_sync.testing.embedded_bot.config import ConfigHandlers
from rtvi_sync.testing.embedded_bot.handshake import Handshake
from rtvi_sync.testing.embedded_bot.messenger import HandlerProvider, MessageHandler, Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.session import BotSession, SessionState, parse
from rtvi_sync.testing.embedded_bot.speech_input import SpeechInput
from rtvi_sync.testing.embedded_bot.validation import InvalidMessageError

logger: logging.Logger = logging.getLogger(__name__)


class BotConversation:
    """Speaks RTVI with one client as a bot of a real framework does, on the thread of the session.

    Args:
        session: the connection.
        state: of the session.
        options: of the bot.
        wished_config: what the connect request wanted set, anything; None if it wanted nothing.
    """

    def __init__(self, session: BotSession, state: SessionState, options: BotOptions, wished_config: Any) -> None:
        self._session = session
        self._options = options
        context = state.context
        self._messenger = Messenger(state.bot_version, session.send)
        self._reply_player = ReplyPlayer(session, self._messenger, context, options)
        self._speech_input = SpeechInput(session, self._messenger, self._reply_player, context, options)
        actions = ActionRegistry(options.actions or {}, context, self._reply_player, quirks=options.quirks)
        self._actions = ActionHandlers(self._messenger, actions)
        parts: list[HandlerProvider] = [
            Handshake(self._messenger, state.config, wished_config, options),
            ClientMessageHandlers(self._messenger, self._reply_player, context, options),
            self._speech_input,
        ]
        if options.has_config:
            parts.append(ConfigHandlers(self._messenger, state.config, self._reply_player))
        if options.has_actions:
            parts.append(self._actions)
        self._handlers: dict[str, MessageHandler] = {"disconnect-bot": lambda _: session.close()}
        for part in parts:
            self._handlers |= part.handlers

    def run(self) -> None:
        """Serve the client. Called once.

        Raises:
            DisconnectedError: always, in the end: the connection has ended.
        """
        if self._options.metrics:
            zero = [{"processor": "EmbeddedBot#0", "value": 0.0}]
            self._messenger.emit("metrics", {"ttfb": zero, "processing": zero})
        while True:
            self._receive()

    def close(self) -> None:
        """End what `run` began: waits for the thread of the turn, and for an action that runs."""
        self._reply_player.stop()
        self._actions.close()
        self._reply_player.stop()  # what the last action may have begun

    def _receive(self) -> None:
        try:
            frame = self._session.receive(self._speech_input.silence_timeout)
        except TimeoutError:
            self._speech_input.end_speech()
            return
        except ProtocolError:
            self._session.close()
            return
        if isinstance(frame, AudioRawFrame):
            self._speech_input.feed(frame)
        elif isinstance(frame, MessageFrame):
            self._message(parse(frame.data))
        elif isinstance(frame, TranscriptionFrame):
            self._speech_input.transcribe(frame.text, final=True)

    def _message(self, received: Any) -> None:
        if not isinstance(received, dict):
            return
        self._session.keep(received)
        if received.get("label") != "rtvi-ai":
            return
        for name, kinds in (("type", str), ("id", str), ("data", dict | None)):
            if not isinstance(received.get(name), kinds):
                self._messenger.error(f"Invalid RTVI transport message: 1 validation error for Message\n{name}")
                return
        try:
            if self._options.handler is None or not self._options.handler(self._session, received):
                self._handle(received)
        except DisconnectedError:
            raise
        except InvalidMessageError as error:
            self._messenger.send_error_response(received, f"Invalid message: {error}")
        except Exception as error:
            logger.exception("a message of type %r failed", received["type"])
            self._messenger.send_error_response(received, f"Exception processing message: {error}")

    def _handle(self, received: Message) -> None:
        handler = self._handlers.get(received["type"])
        if handler is None or not self._messenger.bot_version.accepts(received["type"]):
            self._messenger.send_error_response(received, f"Unsupported type {received['type']}")
        else:
            handler(received)
