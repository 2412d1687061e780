"""A conversation of the embedded bot: its parts, and who of them deals with what the client sends."""

from __future__ import annotations

import logging
from typing import Any

from rtvi_sync.errors import DisconnectedError, ProtocolError
from rtvi_sync.protocol.frames import AudioRawFrame, MessageFrame, TranscriptionFrame
from rtvi_sync.testing.embedded_bot.actions import ActionPart, Actions
from rtvi_sync.testing.embedded_bot.client_messages import Inputs
from rtvi_sync.testing.embedded_bot.config import ConfigPart
from rtvi_sync.testing.embedded_bot.handshake import Handshake
from rtvi_sync.testing.embedded_bot.messenger import Handler, Line, MediaComponent
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import Turns
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.session import BotSession, State, parse
from rtvi_sync.testing.embedded_bot.speech_input import Ears
from rtvi_sync.testing.embedded_bot.validation import InvalidMessageError

logger: logging.Logger = logging.getLogger(__name__)


class Conversation:
    """Speaks RTVI with one client as a bot of a real framework does, on the thread of the session.

    Args:
        session: the connection.
        state: of the session.
        options: of the bot.
        wished_config: what the connect request wanted set, anything; None if it wanted nothing.
    """

    def __init__(self, session: BotSession, state: State, options: BotOptions, wished_config: Any) -> None:
        self._session = session
        self._options = options
        context = state.context
        self._line = Line(state.mode, session.send)
        self._turns = Turns(session, self._line, context, options)
        self._ears = Ears(session, self._line, self._turns, context, options)
        actions = Actions(options.actions or {}, context, self._turns, quirks=options.quirks)
        self._actions = ActionPart(self._line, actions)
        parts: list[MediaComponent] = [
            Handshake(self._line, state.config, wished_config, options),
            Inputs(self._line, self._turns, context, options),
            self._ears,
        ]
        if options.has_config:
            parts.append(ConfigPart(self._line, state.config, self._turns))
        if options.has_actions:
            parts.append(self._actions)
        self._handlers: dict[str, Handler] = {"disconnect-bot": lambda _: session.close()}
        for part in parts:
            self._handlers |= part.handlers

    def run(self) -> None:
        """Serve the client. Called once.

        Raises:
            DisconnectedError: always, in the end: the connection has ended.
        """
        if self._options.metrics:
            zero = [{"processor": "EmbeddedBot#0", "value": 0.0}]
            self._line.tell("metrics", {"ttfb": zero, "processing": zero})
        while True:
            self._receive()

    def close(self) -> None:
        """End what `run` began: waits for the thread of the turn, and for an action that runs."""
        self._turns.stop()
        self._actions.close()
        self._turns.stop()  # what the last action may have begun

    def _receive(self) -> None:
        try:
            frame = self._session.receive(self._ears.patience)
        except TimeoutError:
            self._ears.give_up()
            return
        except ProtocolError:
            self._session.close()
            return
        if isinstance(frame, AudioRawFrame):
            self._ears.hear(frame)
        elif isinstance(frame, MessageFrame):
            self._message(parse(frame.data))
        elif isinstance(frame, TranscriptionFrame):
            self._ears.transcribe(frame.text, final=True)

    def _message(self, received: Any) -> None:
        if not isinstance(received, dict):
            return
        self._session.keep(received)
        if received.get("label") != "rtvi-ai":
            return
        for name, kinds in (("type", str), ("id", str), ("data", dict | None)):
            if not isinstance(received.get(name), kinds):
                self._line.error(f"Invalid RTVI transport message: 1 validation error for Message\n{name}")
                return
        try:
            if self._options.handler is None or not self._options.handler(self._session, received):
                self._handle(received)
        except DisconnectedError:
            raise
        except InvalidMessageError as error:
            self._line.refuse(received, f"Invalid message: {error}")
        except Exception as error:
            logger.exception("a message of type %r failed", received["type"])
            self._line.refuse(received, f"Exception processing message: {error}")

    def _handle(self, received: Message) -> None:
        handler = self._handlers.get(received["type"])
        if handler is None or not self._line.mode.accepts(received["type"]):
            self._line.refuse(received, f"Unsupported type {received['type']}")
        else:
            handler(received)
