"""A conversation of the embedded bot, and the dispatch of the client's messages to their handlers."""

from __future__ import annotations

import logging
from typing import Any

from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError, ProtocolError
from rtvi_sync.protocol.frames import AudioRawFrame, MessageFrame, TranscriptionFrame
from rtvi_sync.testing.embedded_bot.actions import ActionHandlers, ActionRegistry
from rtvi_sync.testing.embedded_bot.client_messages import ClientMessageHandlers
from rtvi_sync.testing.embedded_bot.config import ConfigHandlers
from rtvi_sync.testing.embedded_bot.eval_route import control_of, parse
from rtvi_sync.testing.embedded_bot.handshake import Handshake
from rtvi_sync.testing.embedded_bot.messenger import HandlerProvider, MessageHandler, Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.session import BotSession, SessionState
from rtvi_sync.testing.embedded_bot.speech_input import SpeechInput
from rtvi_sync.testing.embedded_bot.validation import InvalidMessageError, entries

logger: logging.Logger = package_logger(__name__)


class BotConversation:
    """A conversation with one client as a bot of a real framework holds it, on the thread of the session.

    Args:
        session: the connection.
        state: of the session.
        options: of the bot.
        requested_config: the config in the connect request, any JSON; None if it had none.
    """

    def __init__(self, session: BotSession, state: SessionState, options: BotOptions, requested_config: Any) -> None:
        self._session = session
        self._options = options
        self._context = context = state.context
        self._messenger = Messenger(state.bot_version, session.send)
        self._reply_player = ReplyPlayer(session, self._messenger, context, options, state.fault_plan)
        self._speech_input = SpeechInput(session, self._messenger, self._reply_player, context, options)
        actions = ActionRegistry(options.actions or {}, context, self._reply_player, quirks=options.quirks)
        self._actions = ActionHandlers(self._messenger, actions)
        providers: list[HandlerProvider] = [
            Handshake(
                self._messenger,
                state.config,
                requested_config,
                options,
                self._reply_player,
                ready=state.fault_plan.begin_session() and options.ready,
            ),
            ClientMessageHandlers(self._messenger, self._reply_player, context, options),
            self._speech_input,
        ]
        if options.has_config:
            providers.append(ConfigHandlers(self._messenger, state.config, self._reply_player))
        if options.has_actions:
            providers.append(self._actions)
        self._handlers: dict[str, MessageHandler] = {"disconnect-bot": lambda _: session.close()}
        for provider in providers:
            self._handlers |= provider.handlers

    def run(self) -> None:
        """Serve the client until the connection ends. Called once.

        Raises:
            DisconnectedError: the connection has ended; `run()` never returns.
        """
        while True:
            self._receive()

    def close(self) -> None:
        """End the threads of `run()`: wait for the current reply and the current action."""
        self._reply_player.stop()
        self._actions.close()
        self._reply_player.stop()  # the last action may have started another reply

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
                self._messenger.send_error(f"Invalid RTVI transport message: 1 validation error for Message\n{name}")
                return
        try:
            if self._options.handler is not None and self._options.handler(self._session, received):
                return
            control = control_of(received) if self._session.eval_route is not None else None
            if control is None:
                self._handle(received)
            else:
                self._control(control, received["data"].get("d") or {})
        except DisconnectedError:
            raise
        except InvalidMessageError as error:
            self._messenger.send_error_response(received, f"Invalid message: {error}")
        except Exception as error:
            logger.exception("Processing a message of type %r failed", received["type"])
            self._messenger.send_error_response(received, f"Exception processing message: {error}")

    def _handle(self, received: Message) -> None:
        handler = self._handlers.get(received["type"])
        if handler is None or not self._messenger.bot_version.accepts(received["type"]):
            self._messenger.send_error_response(received, f"Unsupported type {received['type']}")
        else:
            handler(received)

    def _control(self, kind: str, data: Any) -> None:
        """Handle a message to the eval route, which no bot answers. Those that have no effect here are only kept."""
        route = self._session.eval_route
        if kind == "eval-context":
            self._context.replace(entries(data, "messages"))
        elif kind == "eval-configure" and route is not None and isinstance(data, dict):
            route.configure(data)
        elif kind == "eval-cancel":
            self._session.close()
