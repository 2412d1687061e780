"""The helper for the language model of a bot of RTVI 0.3 or 1.x, which has its actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from ..messages import RTVIMessage
from ..protocol.dialects import INBOUND, decode_payload
from ..protocol.validation import BOOL, Rule, iterable
from ..session.function_calls import FunctionCallHandler
from .base import DEFAULT_TIMEOUT, TIMEOUT, Timeout
from .helpers import RTVIClientHelper

LLMContextMessage: TypeAlias = Mapping[str, Any]
"""A message of a context: ``{"role": "user", "content": "Hello"}``."""


_MANY = iterable("")
_MESSAGES = Rule("a list of messages or a mapping", lambda given: isinstance(given, Mapping) or _MANY.has_type(given))
# A single message is not a context: it has no "messages", and an empty context would erase the bot's.
_CONTEXT = Rule('a list of messages or {"messages": [...]}', lambda given: _MANY.has_type(_messages_of(given)))


def _messages_of(context: Any) -> Any:
    return context.get("messages") if isinstance(context, Mapping) else context


class LLMHelper(RTVIClientHelper):
    """Reads and changes the context of the bot's language model, and lets it call functions of the application.

        llm = client.register_helper("llm", LLMHelper())
        llm.append_to_messages({"role": "user", "content": "Hello"}, run_immediately=True)

    Its methods call actions of the bot. So they work in a session, and also without one if the server has an endpoint
    for actions. They raise the same errors as `RTVIClient.action()`. `timeout` is the limit of a call in seconds;
    default: the client's `request_timeout`; None: no limit.

    Events: `llm_function_call` (an `LLMFunctionCallData`), `llm_function_call_start` (an `LLMFunctionCallStartedData`)
    and `llm_json_completion` (the bot's JSON). The client's events with these names fire as well.
    """

    message_types: ClassVar[Sequence[str]] = ("llm-function-call", "llm-function-call-start", "llm-json-completion")
    event_names: ClassVar[Sequence[str]] = ("llm_function_call", "llm_function_call_start", "llm_json_completion")
    _function: FunctionCallHandler | None = None  # of `handle_function_call()`

    def get_context(self, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        """Return the context in the bot's own form, usually a list of messages."""
        return self._call("get_context", {}, timeout)

    def set_context(
        self,
        context: Sequence[LLMContextMessage] | Mapping[str, Any],
        interrupt: bool = False,
        timeout: Timeout = DEFAULT_TIMEOUT,
    ) -> Any:
        """Replace the context.

        Args:
            context: The messages, or ``{"messages": [...]}``.
            interrupt: True: interrupt the bot. False: let the bot finish speaking first.

        Returns:
            The bot's result, usually True.
        """
        BOOL.check(interrupt=interrupt)
        _CONTEXT.check(context=context)
        return self._call("set_context", {"messages": list(_messages_of(context)), "interrupt": interrupt}, timeout)

    def append_to_messages(
        self,
        messages: LLMContextMessage | Sequence[LLMContextMessage],
        run_immediately: bool = False,
        timeout: Timeout = DEFAULT_TIMEOUT,
    ) -> Any:
        """Append one or more messages to the context.

        Args:
            messages: ``{"role": "user", "content": "Hello"}``, or a list of such mappings.
            run_immediately: True: the bot answers now.

        Returns:
            The bot's result, usually True.
        """
        BOOL.check(run_immediately=run_immediately)
        _MESSAGES.check(messages=messages)
        given = [messages] if isinstance(messages, Mapping) else list(messages)
        return self._call("append_to_messages", {"messages": given, "run_immediately": run_immediately}, timeout)

    def run(self, interrupt: bool = False, timeout: Timeout = DEFAULT_TIMEOUT) -> Any:
        """Run the language model on its context, and return the bot's result, usually True."""
        BOOL.check(interrupt=interrupt)
        return self._call("run", {"interrupt": interrupt}, timeout)

    def handle_function_call(self, function: FunctionCallHandler) -> None:
        """Run `function(call)` when the bot calls a function of the client without a registration of its own.

        See `RTVIClient.register_function_call_handler()`.
        """
        self.client.register_function_call_handler(None, function)
        self._function = function

    def handle_message(self, message: RTVIMessage) -> None:
        """Emit the event of a message."""
        self.emit(message.type.replace("-", "_"), decode_payload(INBOUND[message.type], message.data))

    def on_unregistered(self) -> None:
        """Unregister the function of this helper. Functions that the application registered itself stay."""
        function, self._function = self._function, None
        if function is not None and self.client._bus.functions.get(None) is function:
            self.client.unregister_function_call_handler(None)

    def _call(self, action: str, arguments: Mapping[str, Any], timeout: Timeout) -> Any:
        TIMEOUT.check(timeout=timeout)
        given = [{"name": name, "value": value} for name, value in arguments.items()]
        answer = self.client.action({"service": self.service, "action": action, "arguments": given}, timeout)
        return answer.data.get("result") if isinstance(answer.data, Mapping) else None
