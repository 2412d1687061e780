"""Client messages other than audio: requests, texts, files, DTMF, UI events, results of functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger
from rtvi_sync.testing.embedded_bot.options import BotOptions
from rtvi_sync.testing.embedded_bot.replies import ReplyPlayer
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.speech_input import now
from rtvi_sync.testing.embedded_bot.validation import field, invalid, optional, required

_KEYS: Final = frozenset("0123456789*#")


class ClientMessageHandlers:
    """Handlers of one client's messages, called on the thread of the session.

    Args:
        messenger: sends the responses.
        reply_player: runs the language model and plays its replies.
        context: receives texts and files.
        options: of the bot.
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
        """Return the handlers by type of message. Messages that have no effect here are only checked."""
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
        if not keys or not all(isinstance(key, str) and key in _KEYS for key in keys):
            raise invalid(name, "Input should be keys of 0-9, * and #")


def _check(received: Message, **fields: Any) -> None:
    for name, kind in fields.items():
        field(received.get("data") or {}, name, kind)


def _run_options(data: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return `run_immediately` and `audio_response` of a client's text or file."""
    options = optional(data, "options", dict) or {}
    return bool(options.get("run_immediately", True)), bool(options.get("audio_response", True))
