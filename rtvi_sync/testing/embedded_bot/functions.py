"""Calls of the client's functions, reported as each generation of bots does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from rtvi_sync.errors import RequestTimeoutError
from rtvi_sync.protocol.eval_messages import LEVELS, ReportLevel
from rtvi_sync.testing.embedded_bot.bot_version import BotVersion
from rtvi_sync.testing.embedded_bot.script import Message, message


class Caller(Protocol):
    """The part of a session that a function call uses."""

    def send(self, message: Message) -> None:
        """Send an RTVI message."""

    def wait_for_message(
        self, type: str, timeout: float = ..., *, where: Callable[[Message], bool] | None = ...
    ) -> Message:
        """Wait for the first message of a type and return it."""


class CallReports:
    """What a bot tells of one call of a function.

    Args:
        bot_version: before RTVI 1.2 a bot reports no calls.
        level: how much it tells.
        name: of the function.
        arguments: of the call.

    Attributes:
        call_id: the id of the call.
        told: True if the bot reports calls at all.
        asks: True if the bot asks the client for a call. From RTVI 1.2 on it need not, because the report is enough:
            here it does so where the report is, so that no function runs that would not without that message.
    """

    def __init__(self, bot_version: BotVersion, level: ReportLevel, name: str, arguments: Mapping[str, Any]) -> None:
        self.call_id: Final = f"call_{uuid.uuid4().hex}"
        self._known = LEVELS.index(level)
        reports = bot_version.sends("llm-function-call-in-progress")
        self.told: Final = reports and level != "disabled"
        self.asks: Final = not reports or self._tells("arguments")
        self._name = name
        self._arguments = dict(arguments)

    def started(self) -> list[Message]:
        """Build the report of a call that the model has begun to write."""
        return self._report("started", self._named())

    def in_progress(self) -> list[Message]:
        """Build the report of a function that runs."""
        given = {"arguments": self._arguments} if self._tells("arguments") else {}
        return self._report("in-progress", {"tool_call_id": self.call_id, **self._named(), **given})

    def stopped(self, result: Any) -> list[Message]:
        """Build the report of a function that has returned. Real bots leave out a falsy result."""
        shown = {"result": result} if self._tells("full") and result else {}
        return self._report("stopped", {"tool_call_id": self.call_id, "cancelled": False, **self._named(), **shown})

    def cancelled(self) -> list[Message]:
        """Build the report of a function that was given up."""
        return self._report("stopped", {"tool_call_id": self.call_id, "cancelled": True, **self._named()})

    def request(self) -> Message:
        """Build the message that asks the client to run its function."""
        data = {"function_name": self._name, "tool_call_id": self.call_id, "args": self._arguments}
        return message("llm-function-call", data)

    def _named(self) -> dict[str, Any]:
        return {"function_name": self._name} if self._tells("name") else {}

    def _tells(self, level: ReportLevel) -> bool:
        return self._known >= LEVELS.index(level)

    def _report(self, phase: str, data: dict[str, Any]) -> list[Message]:
        return [message(f"llm-function-call-{phase}", data)] if self.told else []


def call_function(
    caller: Caller, bot_version: BotVersion, name: str, arguments: Mapping[str, Any], timeout: float, level: ReportLevel
) -> Any:
    """Call a function of the client and return its result; see `BotSession.call_function`."""
    reports = CallReports(bot_version, level, name, arguments)
    if bot_version.sends("llm-function-call-in-progress"):
        opening = [*reports.started(), *reports.in_progress()]
    else:
        opening = [message("llm-function-call-start", {"function_name": name}), reports.request()]
    _send(caller, opening)
    try:
        answer = caller.wait_for_message(
            "llm-function-call-result", timeout, where=lambda received: _answers(received, reports.call_id)
        )
    except RequestTimeoutError:
        _send(caller, reports.cancelled())
        raise
    result = answer["data"]["result"]
    _send(caller, reports.stopped(result))
    return result


def _send(caller: Caller, messages: list[Message]) -> None:
    for each in messages:
        caller.send(each)


def _answers(received: Message, call_id: str) -> bool:
    data = received.get("data")
    return isinstance(data, dict) and data.get("tool_call_id") == call_id and "result" in data
