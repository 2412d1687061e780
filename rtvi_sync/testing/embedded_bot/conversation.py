"""A conversation of the embedded bot: dispatch and handlers of the client's messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from rtvi_sync._version import __version__
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError, ProtocolError
from rtvi_sync.protocol.frames import AudioRawFrame, MessageFrame, TranscriptionFrame
from rtvi_sync.protocol.telephony import KEYS, RATE_HZ
from rtvi_sync.testing.embedded_bot.messages import (
    InvalidMessageError,
    Message,
    MessageHandler,
    Messenger,
    control_of,
    entries,
    field,
    invalid,
    negotiate,
    optional,
    parse,
    required,
)
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.phone import BotCall
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.reply import LLMContext
from rtvi_sync.testing.embedded_bot.services import (
    ActionHandlers,
    ActionRegistry,
    ConfigHandlers,
    LiveConfig,
    read_config,
)
from rtvi_sync.testing.embedded_bot.session import BotSession, SessionState
from rtvi_sync.testing.embedded_bot.speech_input import SpeechInput, now

logger: logging.Logger = package_logger(__name__)

# -- the handshake ----------------------------------------------------------------------------------------------------

# The first protocol versions in which Pipecat bots send these fields in `bot-ready`.
_ABOUT_SINCE: Final = (1, 1)
_CAPABILITIES_SINCE: Final = (2, 2)
_REFUSED: Final = 1008  # the close code of a refused call


class Handshake:
    """The handshake with one client, on the session's thread.

    Args:
        messenger: Sends the response, and learns the client's generation.
        config: Config of the session.
        requested: Config in the connect request, any JSON; None if it had none.
        options: Options of the bot.
        reply_player: Player that greets the user.
        ready: False if the bot never becomes ready.
    """

    def __init__(
        self,
        messenger: Messenger,
        config: LiveConfig,
        requested: Any,
        options: BotOptions,
        reply_player: ReplyPlayer,
        *,
        ready: bool,
    ) -> None:
        self._messenger = messenger
        self._config = config
        self._requested = requested
        self._options = options
        self._reply_player = reply_player
        self._ready = ready

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Handlers by type of message."""
        return {"client-ready": self._client_ready}

    def answer_call(self) -> None:
        """Greet the caller. In a telephone call, no message precedes the bot's speech."""
        self._reply_player.set_input_rate(RATE_HZ)
        if self._ready:
            self._reply_player.greet()

    def _client_ready(self, received: Message) -> None:
        if self._options.metrics:
            # Real bots send them when the pipeline starts. Here the client's first message decides the encoding.
            zero = [{"processor": "EmbeddedBot#0", "value": 0.0}]
            self._messenger.emit("metrics", {"ttfb": zero, "processing": zero})
        if not self._ready:
            return
        bot_version, has_services = self._messenger.bot_version, self._options.has_config or self._options.has_actions
        negotiation = negotiate(bot_version, (received.get("data") or {}).get("version"), has_services=has_services)
        self._messenger.generation = negotiation.generation
        if negotiation.warning:
            self._messenger.send_error_response(received, f"{negotiation.warning} Compatibility issues may occur.")
        if not self._configure():
            return
        ready: dict[str, Any] = {"version": negotiation.version}
        if bot_version.number >= _ABOUT_SINCE:
            ready["about"] = {"library": "rtvi_sync.testing", "library_version": __version__}
        if bot_version.number >= _CAPABILITIES_SINCE:
            ready["capabilities"] = {
                "audio_in": True,
                "audio_out": True,
                "video_in": False,
                "screen_in": False,
                "video_out": False,
                "metrics": self._options.metrics,
            }
        if negotiation.includes_config:
            ready["config"] = self._config.services
        self._messenger.emit("bot-ready", ready, received["id"])
        self._reply_player.greet()

    def _configure(self) -> bool:
        """Set the config of the connect request. If this fails, a real bot never becomes ready, and sends nothing."""
        try:
            if self._requested is not None:
                self._config.update(read_config(self._requested))
        except Exception:
            logger.warning("No bot-ready is sent: cannot set the config of the connect request", exc_info=True)
            return False
        self._requested = None
        return True


# -- client messages other than audio ---------------------------------------------------------------------------------


class ClientMessageHandlers:
    """Handlers of one client's messages, called on the session's thread.

    Args:
        messenger: Sends the responses.
        reply_player: Runs the language model and plays its replies.
        context: Receives texts and files.
        options: Options of the bot.
    """

    def __init__(
        self, messenger: Messenger, reply_player: ReplyPlayer, context: LLMContext, options: BotOptions
    ) -> None:
        self._messenger = messenger
        self._reply_player = reply_player
        self._context = context
        self._options = options

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Handlers by type of message. Messages without an effect here are only checked."""
        return {
            "client-message": self._client_message,
            "send-text": self._send_text,
            "send-file": self._send_file,
            "append-to-context": self._append_to_context,
            "dtmf": self._dtmf,
            "ui-event": lambda received: _check(received, event=str),
            "ui-snapshot": lambda received: _check(received, tree=dict),
            "ui-cancel-task": lambda received: _check(received, task_id=str),
            "ui-cancel-job-group": lambda received: _check(received, job_id=str),
            "llm-function-call-result": self._function_result,
        }

    def _client_message(self, received: Message) -> None:
        data = received.get("data") or {}
        kind = field(data, "t", str)
        answer = self._options.on_request.get(kind, data.get("d"))
        if callable(answer):
            try:
                answer = answer(data.get("d"))
            except Exception as error:  # noqa: BLE001 - a script raises to make the bot refuse
                self._messenger.send_error_response(received, str(error))
                return
        response = {"t": kind} if answer is None else {"t": kind, "d": answer}
        self._messenger.emit("server-response", response, received["id"])

    def _send_text(self, received: Message) -> None:
        data = received.get("data") or {}
        text, run, spoken = field(data, "content", str), *_run_options(data)
        if run:
            self._reply_player.interrupt(typed=True)
        chat = {"text": text, "input_type": "chat", "timestamp": now(), "final": True, "msg_id": received["id"]}
        self._messenger.emit("user-input", chat)
        self._context.add("user", text)
        if run:
            self._reply_player.respond(spoken=spoken)

    def _send_file(self, received: Message) -> None:
        data = received.get("data") or {}
        text, file = field(data, "content", str), field(data, "file", dict)
        field(file, "format", str)
        source = field(file, "source", dict)
        if field(source, "type", str) not in ("bytes", "url"):
            raise invalid("file.source.type", "Input should be 'bytes' or 'url'")
        field(source, source["type"], str)
        run, spoken = _run_options(data)
        if run:
            self._reply_player.interrupt(typed=True)
        self._context.add("user", text)
        if run:
            self._reply_player.respond(spoken=spoken)

    def _append_to_context(self, received: Message) -> None:
        data = received.get("data") or {}
        role, content = field(data, "role", str), required(data, "content")
        run = bool(optional(data, "run_immediately", bool))
        if run:
            self._reply_player.interrupt(typed=True)
        if not self._options.quirks:
            self._messenger.emit("append-to-context-result", {"result": "Message appended to context"}, received["id"])
        self._context.add(role, content)
        if run:
            self._reply_player.respond()

    def _function_result(self, received: Message) -> None:
        _check(received, function_name=str, tool_call_id=str, arguments=dict, result=(dict, str))
        self._reply_player.take_result(received["data"]["tool_call_id"], received["data"]["result"])

    def _dtmf(self, received: Message) -> None:
        data = received.get("data") or {}
        # Older bots take one key in "button"; newer ones take a list in "buttons" and refuse "button".
        name = "button" if self._messenger.bot_version.accepts_field("dtmf.button") else "buttons"
        keys = [field(data, name, str)] if name == "button" else field(data, name, list)
        if not keys or not all(isinstance(key, str) and key in KEYS for key in keys):
            raise invalid(name, "Input should be keys of 0-9, * and #")


def _check(received: Message, **fields: Any) -> None:
    for name, kind in fields.items():
        field(received.get("data") or {}, name, kind)


def _run_options(data: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return `run_immediately` and `audio_response` of a client's text or file."""
    options = optional(data, "options", dict) or {}
    return bool(options.get("run_immediately", True)), bool(options.get("audio_response", True))


# -- the conversation -------------------------------------------------------------------------------------------------


class BotConversation:
    """A conversation with one client, as a bot of a real framework holds it, on the session's thread.

    Args:
        session: Session with the client.
        state: State of the session.
        options: Options of the bot.
        requested_config: Config in the connect request, any JSON; None if it had none.
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
        self._handshake = Handshake(
            self._messenger,
            state.config,
            requested_config,
            options,
            self._reply_player,
            ready=state.fault_plan.begin_session() and options.ready,
        )
        session.before_hang_up(self._reply_player.wait)
        self._handlers: dict[str, MessageHandler] = {
            "disconnect-bot": lambda _: session.close(),
            **self._handshake.handlers,
            **ClientMessageHandlers(self._messenger, self._reply_player, context, options).handlers,
            **self._speech_input.handlers,
        }
        if options.has_config:
            self._handlers |= ConfigHandlers(self._messenger, state.config, self._reply_player).handlers
        if options.has_actions:
            self._handlers |= self._actions.handlers

    def run(self) -> None:
        """Serve the client until the connection ends. Called once.

        Raises:
            DisconnectedError: The connection ended. `run()` never returns.
        """
        while True:
            self._receive()

    def close(self) -> None:
        """End the threads of `run()`, after the current reply and the current action."""
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
        elif isinstance(frame, BotCall):
            self._answer_call()
        elif isinstance(frame, TranscriptionFrame):
            self._speech_input.transcribe(frame.text, final=True)

    def _answer_call(self) -> None:
        if reason := self._options._refuses_calls:
            logger.warning("A telephone call was refused. %s", reason)
            self._session.close(_REFUSED, reason)
        else:
            self._handshake.answer_call()

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
        """Handle a message of the eval route, which bots never answer. Messages without an effect are only stored."""
        route = self._session.eval_route
        if kind == "eval-context":
            self._context.replace(entries(data, "messages"))
        elif kind == "eval-configure" and route is not None and isinstance(data, dict):
            route.configure(data)
        elif kind == "eval-cancel":
            self._session.close()
