"""Config and actions of the embedded bot, for RTVI 0.3 and early 1.x."""

from __future__ import annotations

import collections.abc
import copy
import inspect
import logging
import queue
import threading
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.concurrency.lock import new_lock
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.testing.embedded_bot.messages import (
    Message,
    MessageHandler,
    Messenger,
    ReplyControl,
    entries,
    field,
    optional,
    values_by_name,
)
from rtvi_sync.testing.embedded_bot.reply import LLMContext

logger: logging.Logger = package_logger(__name__)

# -- descriptions of functions as actions -----------------------------------------------------------------------------

_TYPES: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    tuple: "array",
    set: "array",
    collections.abc.Sequence: "array",
    collections.abc.Iterable: "array",
}
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def type_of(value: Any) -> str:
    """Return the RTVI type of a JSON value: "bool", "number", "string", "array" or "object"."""
    return _TYPES.get(type(value), "object")


def describe(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """Describe an action as `actions-available` does.

    Args:
        name: "service:action".
        function: Function that takes the arguments by name. Arguments without a usable annotation get the type
            "object".
    """
    service, _, action = name.partition(":")
    hints = _hints(function)
    arguments = [
        {"name": parameter.name, "type": _type_of_parameter(parameter, hints)}
        for parameter in parameters_of(function)
        if parameter.kind in _NAMED
    ]
    result = _type_named(hints["return"]) if "return" in hints else "object"
    return {"service": service, "action": action, "arguments": arguments, "result": result}


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check that a function can be called with these arguments.

    Raises:
        TypeError: An argument is missing or unexpected. The text says which.
    """
    inspect.Signature(parameters_of(function)).bind(**arguments)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; arbitrary keywords if it has no signature, as some C functions."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # a name that only type checkers know, or a callable that is not a plain function
        return {}


def _type_of_parameter(parameter: inspect.Parameter, hints: Mapping[str, Any]) -> str:
    if parameter.name in hints:
        return _type_named(hints[parameter.name])
    return "object" if parameter.default is inspect.Parameter.empty else type_of(parameter.default)


def _type_named(hint: Any) -> str:
    """Return the RTVI type of an annotation. A union has the type of its first member that is not None."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _type_named(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return next(_type_named(part) for part in typing.get_args(hint) if part is not type(None))
    if origin is typing.Literal:
        return type_of(typing.get_args(hint)[0])
    return _TYPES.get(origin or hint, "object")


# -- actions ----------------------------------------------------------------------------------------------------------

Action: TypeAlias = Callable[..., Any]
ActionName: TypeAlias = str | tuple[str, str]


@attrs.frozen(kw_only=True)
class ActionCall:
    """A client's call of an action."""

    received: Message
    name: str
    arguments: dict[str, Any]


def read_call(received: Message) -> ActionCall:
    """Return the call in a client's `action` message.

    Raises:
        InvalidMessageError: The message is malformed.
    """
    data = received.get("data") or {}
    name = f"{field(data, 'service', str)}:{field(data, 'action', str)}"
    given = optional(data, "arguments", list)
    return ActionCall(received=received, name=name, arguments=values_by_name(data, "arguments") if given else {})


class NeverAnsweredError(Exception):
    """A failed action that stays unanswered, with all actions after it, as in Pipecat."""


class ActionRegistry:
    """The actions of one session: the application's, and the actions of every bot.

    Args:
        functions: The application's functions, by ``service:action``.
        context: Messages that ``llm:...`` reads and changes.
        reply_control: Control of the speech for ``llm:run`` and ``tts:...``.
        quirks: True if an action that fails or returns None stays unanswered.
    """

    def __init__(
        self, functions: Mapping[str, Action], context: LLMContext, reply_control: ReplyControl, *, quirks: bool
    ) -> None:
        self._context = context
        self._reply_control = reply_control
        self._quirks = quirks
        self._run_requested = False
        self._interrupts = False
        self._functions: dict[str, Action] = {
            "llm:get_context": self._get_context,
            "llm:set_context": self._set_context,
            "llm:append_to_messages": self._append_to_messages,
            "llm:run": self._run,
            "tts:say": self._say,
            "tts:interrupt": self._interrupt,
            **functions,
        }

    def describe(self) -> list[dict[str, Any]]:
        """Describe every action: the names and types of its arguments and the type of its result."""
        return [describe(name, function) for name, function in self._functions.items()]

    def perform(self, call: ActionCall, messenger: Messenger) -> None:
        """Run an action, answer it, and run the language model if the action requested it.

        Raises:
            NeverAnsweredError: The action failed or returned None, and the bot has `quirks`.
            DisconnectedError: The client disconnected.
        """
        function = self._functions.get(call.name)
        if function is None:
            messenger.send_error_response(call.received, f"Action {call.name} not registered")
            return
        try:
            check_arguments(function, call.arguments)
            result = function(**call.arguments)
            if result is None and self._quirks:
                raise ValueError("the result is None")
            messenger.emit("action-response", {"result": True if result is None else result}, call.received["id"])
        except DisconnectedError:
            raise
        except Exception as error:
            if self._quirks:
                raise NeverAnsweredError from error
            messenger.send_error_response(call.received, str(error) or type(error).__name__)
        # A real bot's language model runs in its pipeline, so its reply follows the answer of the action.
        run_requested, self._run_requested = self._run_requested, False
        if run_requested:
            if self._interrupts:
                self._reply_control.stop_speaking()
            self._reply_control.respond()

    def _get_context(self) -> list[dict[str, Any]]:
        return self._context.messages

    def _set_context(self, messages: list[dict[str, Any]], interrupt: bool = False) -> bool:
        self._context.replace(_checked(messages))
        if interrupt:
            self._reply_control.stop_speaking()
        return True

    def _append_to_messages(self, messages: list[dict[str, Any]], run_immediately: bool = False) -> bool:
        self._context.extend(_checked(messages))
        return self._run() if run_immediately else True

    def _run(self, interrupt: bool = True) -> bool:
        self._run_requested, self._interrupts = True, interrupt
        return True

    def _say(self, text: str, interrupt: bool = False) -> bool:
        if not isinstance(text, str):
            raise TypeError("text must be a string")
        if interrupt:
            self._reply_control.stop_speaking()
        self._reply_control.say(text)
        return True

    def _interrupt(self) -> bool:
        self._reply_control.stop_speaking()
        return True


def _checked(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise TypeError("messages must be an array of objects")
    return messages


class ActionHandlers:
    """Handlers that run a session's actions one after the other, on their own thread.

    Other messages overtake the actions.

    Args:
        messenger: Sender of messages to the client.
        actions: Actions of the session.
    """

    def __init__(self, messenger: Messenger, actions: ActionRegistry) -> None:
        self._messenger = messenger
        self._actions = actions
        self._calls: queue.SimpleQueue[ActionCall | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """The handlers by type of message."""
        return {"describe-actions": self._describe, "action": self._action}

    def close(self) -> None:
        """End the thread after its current action. Called after the session, when no message follows."""
        self._closed = True
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()

    def _describe(self, received: Message) -> None:
        self._messenger.emit("actions-available", {"actions": self._actions.describe()}, received["id"])

    def _action(self, received: Message) -> None:
        self._calls.put(read_call(received))
        if self._thread is None:
            self._thread = start_thread("bot-action", self._perform)

    def _perform(self) -> None:
        """Run actions until the end; runs on the actions' thread."""
        while (call := self._calls.get()) is not None and not self._closed:
            try:
                self._actions.perform(call, self._messenger)
            except NeverAnsweredError:
                logger.warning("Action %s failed: it and all later actions stay unanswered", call.name, exc_info=True)
                return
            except DisconnectedError:
                return
            except Exception as error:
                logger.exception("The bot's reply after action %s failed", call.name)
                self._messenger.send_error(f"Error processing frame: {error}")


# -- config -----------------------------------------------------------------------------------------------------------

Config: TypeAlias = list[dict[str, Any]]
OptionTypes: TypeAlias = Mapping[str, Mapping[str, str]]
OnConfig: TypeAlias = Callable[[str, str, Any], object]


def read_config(config: Sequence[Mapping[str, Any]]) -> Config:
    """Check a config and return a copy of it.

    Raises:
        InvalidMessageError: `config` is not a list of ``{"service", "options": [{"name", "value"}]}``.
    """
    return [
        {
            "service": field(service, "service", str),
            "options": [
                {"name": name, "value": copy.deepcopy(value)}
                for name, value in values_by_name(service, "options").items()
            ],
        }
        for service in entries({"config": config}, "config")
    ]


class UnknownOptionError(KeyError):
    """The bot has no such service or option."""


class LiveConfig:
    """The config of one session. Any thread may read it; the session's thread changes it.

    Args:
        config: Initial config of the bot.
        types: Types of the bot's options, by service. A missing option has the type of its value in `config`.
        on_config: Function of service, option and value, called before an option is set.
    """

    def __init__(self, config: Config, types: OptionTypes, on_config: OnConfig | None) -> None:
        # Guards _config. Threads of the session and the test hold it briefly.
        self._lock = new_lock()
        self._config = copy.deepcopy(config)
        self._on_config = on_config
        self._types: dict[str, dict[str, str]] = {}
        for service in config:
            self._types[service["service"]] = {
                option["name"]: type_of(option["value"]) for option in service["options"]
            }
        for name, options in types.items():
            self._types[name] = self._types.get(name, {}) | dict(options)

    @property
    def services(self) -> Config:
        """A copy of the config."""
        with self._lock:
            return copy.deepcopy(self._config)

    def describe(self) -> list[dict[str, Any]]:
        """Return all options with their types, by service. On the wire, a service has the key "name"."""
        return [
            {"name": service, "options": [{"name": name, "type": kind} for name, kind in options.items()]}
            for service, options in self._types.items()
        ]

    def update(self, changes: Config) -> None:
        """Set options one after the other. Options of a known service that is not in the config are dropped.

        Raises:
            UnknownOptionError: A service or option is unknown. The options before it are set.
            Exception: `on_config` raised. The options before this one are set; this one is not.
        """
        for change in changes:
            service = change["service"]
            if service not in self._types:
                raise UnknownOptionError(service)
            for option in change["options"]:
                name, value = option["name"], option["value"]
                if name not in self._types[service]:
                    raise UnknownOptionError(name)
                if self._on_config is not None:
                    self._on_config(service, name, value)
                self._set(service, name, value)

    def _set(self, service: str, name: str, value: Any) -> None:
        with self._lock:
            for entry in self._config:
                if entry["service"] == service:
                    for option in entry["options"]:
                        if option["name"] == name:
                            option["value"] = value
                            return
                    entry["options"].append({"name": name, "value": value})


class ConfigHandlers:
    """Handlers of the messages about the config.

    Args:
        messenger: Sender of messages to the client.
        config: Config of the session.
        reply_control: Control of the speech: an update may interrupt the bot, and ``llm.run_on_config`` runs the model.
    """

    def __init__(self, messenger: Messenger, config: LiveConfig, reply_control: ReplyControl) -> None:
        self._messenger = messenger
        self._config = config
        self._reply_control = reply_control

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """The handlers by type of message."""
        return {"get-config": self._get, "describe-config": self._describe, "update-config": self._update}

    def _get(self, received: Message) -> None:
        self._messenger.emit("config", {"config": self._config.services}, received["id"])

    def _describe(self, received: Message) -> None:
        self._messenger.emit("config-available", {"config": self._config.describe()}, received["id"])

    def _update(self, received: Message) -> None:
        data = received.get("data") or {}
        changes = read_config(field(data, "config", list))
        if optional(data, "interrupt", bool):
            self._reply_control.stop_speaking()
        try:
            self._config.update(changes)
        except UnknownOptionError as error:
            self._messenger.send_error_response(received, f"Exception processing message: {error}")
            return
        self._get(received)
        options = [(change["service"], option) for change in changes for option in change["options"]]
        if ("llm", {"name": "run_on_config", "value": True}) in options:
            self._reply_control.respond()
