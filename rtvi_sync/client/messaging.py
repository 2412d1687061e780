"""The part of the client that sends messages to the bot, and runs functions for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from ..errors import MessageTooLargeError
from ..messages import RTVIMessage
from ..protocol.dialects import load_payload
from ..protocol.validation import BOOL, MAPPING, NAME, STRING, function_taking, instance_of
from ..session.function_calls import CALL_EVENTS, FunctionCallHandler
from .base import DEFAULT_TIMEOUT, ClientBase, Timeout
from .message_builders import (
    FILE,
    KEYS,
    MAX_UPLOAD_BYTES,
    FileLike,
    cancel_message,
    dtmf_messages,
    load_file,
    run_options,
)

_MESSAGE = instance_of("an RTVIMessage", RTVIMessage)

FunctionT = TypeVar("FunctionT", bound=FunctionCallHandler)


class BotMessages(ClientBase):
    """Messages to the bot.

    All of them raise `BotNotReadyError`, `DisconnectedError`, `MessageTooLargeError` (over the transport's limit),
    `UnsupportedFeatureError` (the bot's version does not know the message, or the transport carries no messages;
    nothing is sent) and `TypeError` or `ValueError` (something in it is not JSON).
    """

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type. Returns at once and waits for no answer."""
        _MESSAGE.check(message=message)
        self._life.session().send(message)

    def send_client_message(self, type: str, data: Any = None) -> None:
        """Send a message of your application's own; waits for no answer."""
        self.send_message(_client_message(type, data))

    def send_client_request(self, type: str, data: Any = None, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        """Send a message of your application's own and wait for the bot's answer to it.

        Args:
            type: the name by which your bot handles it.
            data: plain JSON.
            timeout: seconds; omitted: the client's `request_timeout`; None: no limit.

        Returns:
            The data of the answer (plain JSON, or None).

        Raises:
            RequestTimeoutError: no answer in time; the session goes on.
            RequestRejectedError: the bot refused.
            DisconnectedError: the session ended first.
            ProtocolError: the answer is over a limit of this client, which the error names.
        """
        answer = self._ask(_client_message(type, data), timeout)
        return answer.data.get("d") if isinstance(answer.data, Mapping) else None

    def send_text(self, content: str, run_immediately: bool = True, audio_response: bool = True) -> None:
        """Send a text that the user typed.

        Args:
            content: the text.
            run_immediately: the bot answers now, and is interrupted if it is speaking; False: the text joins the
                context.
            audio_response: the answer is spoken; False: it comes as text only.
        """
        STRING.check(content=content)
        options = run_options(run_immediately, audio_response)
        self.send_message(RTVIMessage("send-text", {"content": content, "options": options}))

    def send_file(
        self,
        file: FileLike,
        content: str = "",
        run_immediately: bool = True,
        audio_response: bool = True,
        *,
        format: str | None = None,
        name: str | None = None,
        custom_options: Mapping[str, Any] | None = None,
        timeout: Timeout = DEFAULT_TIMEOUT,
    ) -> None:
        """Send a file to the bot's language model.

        A file that is too large for a message is uploaded to the server that has started the bot, if that takes files
        (Pipecat's runner with ``-u FOLDER`` does); the call then blocks until the server has it. At most 50 MiB.

        Args:
            file: its bytes, its path, or a URL that the bot can read ("https://...").
            content: text that accompanies it.
            run_immediately: the bot answers now; False: the file joins the context.
            audio_response: the answer is spoken. (Pipecat 1.14.0 speaks in any case.)
            format: MIME type; None: by the name, or as a "data:" URL says, else "application/octet-stream".
            name: the file's name for the bot; None: the name of the path or URL, if it has one.
            custom_options: further options of the bot's language model.
            timeout: seconds for the upload of a large file; omitted: the client's `request_timeout`; None: no limit.

        Raises:
            OSError: the file cannot be read.
            MessageTooLargeError: it is too large for a message, and cannot be uploaded.
            RequestRejectedError, RequestTimeoutError: the upload failed, or took too long; the session goes on.
        """
        deadline = self._deadline(timeout)
        FILE.check(file=file)
        STRING.check(content=content)
        NAME.or_none.check(format=format, name=name)
        MAPPING.or_none.check(custom_options=custom_options)
        options = run_options(run_immediately, audio_response, custom_options)
        session = self._life.session()
        session.check_ready()  # before the file is read
        check_bot_takes(self, "send-file")  # before it is read and uploaded
        limit = session.transport.max_message_size
        loaded = load_file(file, format, name, MAX_UPLOAD_BYTES if session.takes_uploads else limit)
        try:
            data = loaded.as_message(limit)
            self.send_message(RTVIMessage("send-file", {"content": content, "file": data, "options": options}))
        except MessageTooLargeError:
            if loaded.content is None or not session.takes_uploads:
                raise
            url = session.upload(loaded.name or "file", loaded.format, loaded.content, deadline)
            data = attrs.evolve(loaded, content=None, url=url).as_message(limit)
            self.send_message(RTVIMessage("send-file", {"content": content, "file": data, "options": options}))

    def append_to_context(self, role: str, content: Any, run_immediately: bool = False) -> None:
        """Add a message to the context of the language model of a bot of RTVI 1.x; for later ones use `send_text()`.

        Pipecat does not answer it; where a bot does, `append_to_context_result` fires.

        Args:
            role: "user" or "assistant".
            content: a text, or another form that the bot's language model takes.
            run_immediately: True: the bot answers now.
        """
        NAME.check(role=role)
        BOOL.check(run_immediately=run_immediately)
        data = {"role": role, "content": content, "run_immediately": run_immediately}
        self.send_message(RTVIMessage("append-to-context", data))

    def send_dtmf(self, keys: str) -> None:
        """Send the tones of telephone keys, one after the other: "123#".

        In a call by telephone it returns when the last one was sent, 100 ms after the one before it.

        Raises:
            TypeError: `keys` is no string.
            ValueError: a character other than 0-9, * and #, or none.
        """
        KEYS.check(keys=keys)
        session = self._life.session()
        if not session.transport.carries_messages:
            session.press(keys)
            return
        for message in dtmf_messages(keys, session.engine.version):
            session.send(message)

    def send_ui_event(self, event: str, payload: Any = None) -> None:
        """Send an event of your application's user interface, with any JSON."""
        NAME.check(event=event)
        self.send_message(RTVIMessage("ui-event", {"event": event, "payload": payload}))

    def send_ui_snapshot(self, tree: Mapping[str, Any]) -> None:
        """Send the contents of your user interface as an accessibility tree, ``{"root": {"ref": "e1", "role": "main",
        "children": []}, "captured_at": 1}``.
        """
        MAPPING.check(tree=tree)
        self.send_message(RTVIMessage("ui-snapshot", {"tree": tree}))

    def cancel_ui_job_group(self, job_id: str, reason: str | None = None) -> None:
        """Request the bot to cancel a group of jobs; `ui_job_group` events report the result."""
        NAME.check(job_id=job_id)
        STRING.or_none.check(reason=reason)
        session = self._life.session()
        session.send(cancel_message(job_id, reason, session.engine.version))

    def disconnect_bot(self) -> None:
        """Request the bot to leave. A Pipecat bot then ends the session, and `disconnected` fires.

        The session is not replaced, whatever `ReconnectPolicy` there is.
        """
        check_bot_takes(self, "disconnect-bot")  # before the session counts as one that is not replaced
        self._life.dismiss_bot()
        self.send_message(RTVIMessage("disconnect-bot", {}))

    # -- functions that the bot calls ---------------------------------------------------------------------------------

    def register_function_call_handler(self, name: str | None, function: FunctionT) -> FunctionT:
        """Run `function(call)` when the bot's language model calls `name`, in this session and later ones.

        Its return value is sent to the bot: a dict or a text that is not empty as it is, any other JSON as
        ``{"result": value}``. It runs on a thread of its own, so that it may block; in manual mode where handlers do.
        If it raises, the error is logged and published as `handler_error`, and the bot gets ``{"error": ...}``. A
        session that ends waits a second for it and drops its result.

        The bot has to send names and arguments: set `function_call_report_level` to ARGUMENTS in the parameters of
        Pipecat's RTVI observer.

        Args:
            name: the function's name; a second function replaces the first. None: for all other names that bots call by
                `llm-function-call`, the message of RTVI 0.3 and 1.x. (Later bots announce their own functions and the
                client's in the same way, so None has no effect there.)
            function: takes a `FunctionCall`.

        Raises:
            TypeError: it cannot be called, or is a coroutine or generator function.
        """
        NAME.or_none.check(name=name)
        function_taking("call").check(function=function)
        for event in CALL_EVENTS:
            load_payload(event)
        self._bus.functions[name] = function
        return function

    def unregister_function_call_handler(self, name: str | None) -> None:
        """Run no function any longer when the bot calls `name`. Without effect if none is registered."""
        NAME.or_none.check(name=name)
        self._bus.functions.pop(name, None)

    def unregister_all_function_call_handlers(self) -> None:
        """Run no function any longer."""
        self._bus.functions.clear()


def _client_message(type_: str, data: Any) -> RTVIMessage:
    NAME.check(type=type_)
    return RTVIMessage("client-message", {"t": type_} if data is None else {"t": type_, "d": data})


def check_bot_takes(client: ClientBase, type_: str) -> None:
    """Check that messages of a type can be sent, before it is told that one was. Not for types that the bot answers.

    Raises:
        BotNotReadyError, DisconnectedError, UnsupportedFeatureError: as sending it does.
    """
    client._life.session().check_takes(RTVIMessage(type_))
