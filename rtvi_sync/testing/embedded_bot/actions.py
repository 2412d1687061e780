"""The actions of the embedded bot, as bots of RTVI 0.3 and early 1.x have them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from rtvi_sync.concurrency.lifecycle import start_thread
from rtvi_sync.errors import DisconnectedError
from rtvi_sync.testing.embedded_bot.action_schema import check_arguments, describe
from rtvi_sync.testing.embedded_bot.llm_context import LLMContext
from rtvi_sync.testing.embedded_bot.messenger import MessageHandler, Messenger, ReplyControl
from rtvi_sync.testing.embedded_bot.script import Message
from rtvi_sync.testing.embedded_bot.validation import field, optional, values_by_name

logger: logging.Logger = logging.getLogger(__name__)

Action: TypeAlias = Callable[..., Any]
ActionName: TypeAlias = str | tuple[str, str]


@attrs.frozen(kw_only=True)
class ActionCall:
    """An action that a client asks for."""

    received: Message
    name: str
    arguments: dict[str, Any]


def read_call(received: Message) -> ActionCall:
    """What a client's `action` message asks for.

    Raises:
        InvalidMessageError: the message says it wrongly.
    """
    data = received.get("data") or {}
    name = f"{field(data, 'service', str)}:{field(data, 'action', str)}"
    given = optional(data, "arguments", list)
    return ActionCall(received=received, name=name, arguments=values_by_name(data, "arguments") if given else {})


class NeverAnsweredError(Exception):
    """Nothing answers this action, nor any after it: what bots of Pipecat make of a failure."""


class ActionRegistry:
    """The actions of one session: the user's, and those that every bot has.

    Args:
        functions: the user's, by ``service:action``.
        context: what ``llm:...`` works on.
        speaker: what ``llm:run`` and ``tts:...`` make speak.
        quirks: True: an action that fails or returns None is never answered.
    """

    def __init__(
        self, functions: Mapping[str, Action], context: LLMContext, reply_control: ReplyControl, *, quirks: bool
    ) -> None:
        self._context = context
        self._reply_control = reply_control
        self._quirks = quirks
        self._wants_run = False
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
        """Every action with the names and types of its arguments and the type of its result."""
        return [describe(name, function) for name, function in self._functions.items()]

    def perform(self, call: ActionCall, messenger: Messenger) -> None:
        """Run an action, answer it, and let the language model answer if the action wants that.

        Raises:
            NeverAnsweredError
            DisconnectedError: nobody is there to be answered.
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
        # A real bot's language model answers in its pipeline, behind the action's own answer.
        wants_run, self._wants_run = self._wants_run, False
        if wants_run:
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
        if interrupt:
            self._reply_control.stop_speaking()
        self._wants_run = True
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
    """Runs the actions of a session one after the other, in a thread of their own; other messages overtake them.

    Args:
        line: to the client.
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
        """By type of message."""
        return {"describe-actions": self._describe, "action": self._action}

    def close(self) -> None:
        """End the thread, after the action that it is at. The session has ended: no message comes any more."""
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
        """The body of the thread."""
        while (call := self._calls.get()) is not None and not self._closed:
            try:
                self._actions.perform(call, self._messenger)
            except NeverAnsweredError:
                logger.warning("%s failed: it and all later actions stay unanswered", call.name, exc_info=True)
                return
            except DisconnectedError:
                return
            except Exception as error:
                logger.exception("the bot could not answer after %s", call.name)
                self._messenger.error(f"Error processing frame: {error}")
