"""Actions of the embedded bot, as bots of RTVI 0.3 and early 1.x have them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.concurrency.logs import package_logger
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.testing.embedded_bot.action_schema import check_arguments, describe
from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger, ReplyControl
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.validation import field, optional, values_by_name

logger: logging.Logger = package_logger(__name__)

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
        InvalidMessageError: the message is malformed.
    """
    data = received.get("data") or {}
    name = f"{field(data, 'service', str)}:{field(data, 'action', str)}"
    given = optional(data, "arguments", list)
    return ActionCall(received=received, name=name, arguments=values_by_name(data, "arguments") if given else {})


class NeverAnsweredError(Exception):
    """A failed action that stays unanswered, as all actions after it do: the behaviour of bots of Pipecat."""


class ActionRegistry:
    """The actions of one session: the application's, and those that every bot has.

    Args:
        functions: the application's, by ``service:action``.
        context: the messages that ``llm:...`` reads and changes.
        reply_control: speaks and stops for ``llm:run`` and ``tts:...``.
        quirks: True: an action that fails or returns None is never answered.
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
        """Run an action, answer it, and run the language model if the action requested that.

        Raises:
            NeverAnsweredError: the action failed or returned None, and the bot has `quirks`.
            DisconnectedError: the client has disconnected.
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
        # A real bot's language model runs in its pipeline, so its reply follows the action's own answer.
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
    """Handlers that run a session's actions one after the other, on a thread of their own.

    Other messages overtake the actions.

    Args:
        messenger: to the client.
        actions: of the session.
    """

    def __init__(self, messenger: Messenger, actions: ActionRegistry) -> None:
        self._messenger = messenger
        self._actions = actions
        self._calls: queue.SimpleQueue[ActionCall | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    @property
    def handlers(self) -> Mapping[str, MessageHandler]:
        """Return the handlers by type of message."""
        return {"describe-actions": self._describe, "action": self._action}

    def close(self) -> None:
        """End the thread after its current action. Called when the session has ended and no message follows."""
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
        """Run actions until the end; runs on the thread of actions."""
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
