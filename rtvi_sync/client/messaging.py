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

    All methods may raise `BotNotReadyError`, `DisconnectedError` and `MessageTooLargeError` (over the transport's
    limit). They raise `UnsupportedFeatureError` without sending anything if the bot's version does not know the
    message, or the transport carries no messages. They raise `TypeError` or `ValueError` if the data is not JSON.
    """

    def send_message(self, message: RTVIMessage) -> None:
        """Send a message of any type. Returns at once, without waiting for an answer."""
        _MESSAGE.check(message=message)
        self._life.session().send(message)

    def send_client_message(self, type: str, data: Any = None) -> None:
        """Send a message that your application defines. Does not wait for an answer."""
        self.send_message(_client_message(type, data))

    def send_client_request(self, type: str, data: Any = None, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        """Send a message that your application defines, and wait for the bot's answer to it.

        Args:
            type: The name by which your bot handles the message.
            data: Plain JSON.
            timeout (seconds): Limit of the call. Default: the client's `request_timeout`. None: no limit.

        Returns:
            The data of the answer: plain JSON, or None.

        Raises:
            RequestTimeoutError: No answer arrived in time. The session continues.
            RequestRejectedError: The bot refused.
            DisconnectedError: The session ended first.
            ProtocolError: The answer is over a limit of this client. The error names the limit.
        """
        answer = self._ask(_client_message(type, data), timeout)
        return answer.data.get("d") if isinstance(answer.data, Mapping) else None

    def send_text(self, content: str, run_immediately: bool = True, audio_response: bool = True) -> None:
        """Send typed text of the user.

        Args:
            content: The text.
            run_immediately: True: the bot answers now, and is interrupted if it is speaking. False: the text only joins
                the context.
            audio_response: False: ask for text only, without speech.
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

        If the file is too large for a message, the client uploads it to the server that started the bot, and blocks
        until the server has it. The server must take files, as Pipecat's runner does with ``-u FOLDER``. The limit is
        50 MiB.

        Args:
            file: The file's bytes, its path, or a URL that the bot can read (`https://...`).
            content: Text to send with the file.
            run_immediately: True: the bot answers now. False: the file only joins the context.
            audio_response: True: the bot speaks the answer. (Pipecat 1.14.0 speaks in any case.)
            format: MIME type. None: the type of the file's name or of a "data:" URL, else "application/octet-stream".
            name: The file's name for the bot. None: the name in the path or URL, if any.
            custom_options: Further options of the bot's language model.
            timeout (seconds): Limit of the upload of a large file. Default: the client's `request_timeout`. None: no
                limit.

        Raises:
            OSError: The file cannot be read.
            MessageTooLargeError: The file is too large for a message, and cannot be uploaded.
            RequestRejectedError, RequestTimeoutError: The upload failed, or took too long. The session continues.
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
        """Add a message to the context of a bot of RTVI 1.x. For later bots use `send_text()`.

        Pipecat does not answer it. If a bot does, the event `append_to_context_result` fires.

        Args:
            role: "user" or "assistant".
            content: A text, or another form that the bot's language model takes.
            run_immediately: True: the bot answers now.
        """
        NAME.check(role=role)
        BOOL.check(run_immediately=run_immediately)
        data = {"role": role, "content": content, "run_immediately": run_immediately}
        self.send_message(RTVIMessage("append-to-context", data))

    def send_dtmf(self, keys: str) -> None:
        """Send the tones of telephone keys, one after the other: "123#".

        In a telephone call, blocks until the last tone was sent. There are 100 ms between two tones.

        Raises:
            TypeError: `keys` is not a string.
            ValueError: `keys` is empty, or contains a character other than 0-9, * and #.
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
        """Request the bot to cancel a group of jobs. `ui_job_group` events report the result."""
        NAME.check(job_id=job_id)
        STRING.or_none.check(reason=reason)
        session = self._life.session()
        session.send(cancel_message(job_id, reason, session.engine.version))

    def disconnect_bot(self) -> None:
        """Request the bot to leave. A Pipecat bot then ends the session, and `disconnected` fires.

        The client does not reconnect, even with a `ReconnectPolicy`.
        """
        check_bot_takes(self, "disconnect-bot")  # before the session is marked as one that is not replaced
        self._life.dismiss_bot()
        self.send_message(RTVIMessage("disconnect-bot", {}))

    # -- functions that the bot calls ---------------------------------------------------------------------------------

    def register_function_call_handler(self, name: str | None, function: FunctionT) -> FunctionT:
        """Run `function(call)` when the bot's language model calls `name`, in this session and later ones.

        The client sends the return value to the bot: a dict or a non-empty text as it is, any other JSON as
        ``{"result": value}``. The function runs on a thread of its own, so it may block. In manual mode it runs like a
        handler. If it raises, the error is logged and published as `handler_error`, and the bot gets
        ``{"error": ...}``. When a session ends, the client waits 1 s for the function and drops its result.

        The bot must report names and arguments: set `function_call_report_level` to ARGUMENTS in the parameters of
        Pipecat's RTVI observer.

        Args:
            name: The function's name. A second function of the same name replaces the first. None: all other names
                that bots call by `llm-function-call`, the message of RTVI 0.3 and 1.x. (Later bots announce their own
                functions and the client's in the same way, so None has no effect there.)
            function: A function that takes a `FunctionCall`.

        Raises:
            TypeError: `function` cannot be called, or is a coroutine or generator function.
        """
        NAME.or_none.check(name=name)
        function_taking("call").check(function=function)
        for event in CALL_EVENTS:
            load_payload(event)
        self._bus.functions[name] = function
        return function

    def unregister_function_call_handler(self, name: str | None) -> None:
        """Unregister the function for `name`. Does nothing if there is none."""
        NAME.or_none.check(name=name)
        self._bus.functions.pop(name, None)

    def unregister_all_function_call_handlers(self) -> None:
        """Unregister all functions."""
        self._bus.functions.clear()


def _client_message(type_: str, data: Any) -> RTVIMessage:
    NAME.check(type=type_)
    return RTVIMessage("client-message", {"t": type_} if data is None else {"t": type_, "d": data})


def check_bot_takes(client: ClientBase, type_: str) -> None:
    """Check that messages of a type can be sent, before the application acts on it. Not for types that bots answer.

    Raises:
        BotNotReadyError, DisconnectedError, UnsupportedFeatureError: As sending the message would.
    """
    client._life.session().check_takes(RTVIMessage(type_))
