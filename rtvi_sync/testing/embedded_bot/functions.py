"""Calls of the client's functions, reported as each generation of bots does."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

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


def call_function(
    caller: Caller, bot_version: BotVersion, name: str, arguments: Mapping[str, Any], timeout: float, level: ReportLevel
) -> Any:
    """Call a function of the client and return its result; see `BotSession.call_function`."""
    known = LEVELS.index(level)
    call_id = f"call_{uuid.uuid4().hex}"
    named = {"function_name": name} if known >= LEVELS.index("name") else {}
    reports = bot_version.sends("llm-function-call-in-progress")

    def report(phase: str, data: dict[str, Any]) -> None:
        if reports and level != "disabled":
            caller.send(message(f"llm-function-call-{phase}", data))

    if reports:
        given = {"arguments": dict(arguments)} if known >= LEVELS.index("arguments") else {}
        report("started", named)
        report("in-progress", {"tool_call_id": call_id, **named, **given})
    else:
        caller.send(message("llm-function-call-start", {"function_name": name}))
        data = {"function_name": name, "tool_call_id": call_id, "args": dict(arguments)}
        caller.send(message("llm-function-call", data))
    try:
        answer = caller.wait_for_message(
            "llm-function-call-result", timeout, where=lambda received: _answers(received, call_id)
        )
    except RequestTimeoutError:
        report("stopped", {"tool_call_id": call_id, "cancelled": True, **named})
        raise
    result = answer["data"]["result"]
    # Real bots leave out a falsy result.
    shown = {"result": result} if level == "full" and result else {}
    report("stopped", {"tool_call_id": call_id, "cancelled": False, **named, **shown})
    return result


def _answers(received: Message, call_id: str) -> bool:
    data = received.get("data")
    return isinstance(data, dict) and data.get("tool_call_id") == call_id and "result" in data
