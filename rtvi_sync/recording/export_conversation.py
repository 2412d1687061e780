"""Exports a recording as a conversation file of Pipecat's evals: the words of both sides, and the calls. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtvi_sync import Turn


def conversation(turns: Sequence[Turn]) -> str:
    """Return a JSON list of messages.

    The bot's words between two texts of the user form one message, which holds only the heard part. The bot's function
    calls precede it.
    """
    messages: list[dict[str, Any]] = []
    said: list[str] = []

    def end_answer() -> None:
        if said:
            messages.append({"role": "assistant", "content": " ".join(said)})
            said.clear()

    for turn in turns:
        if user := (turn.user_text or "").strip():
            end_answer()
            messages.append({"role": "user", "content": user})
        for call in turn.function_calls:
            name, arguments = call.function_name or "", call.arguments or {}
            messages.append({"role": "tool_call", "name": name, "arguments": arguments, "cancelled": call.cancelled})
        if bot := ((turn.spoken_text if turn.interrupted else turn.bot_text) or "").strip():
            said.append(bot)
    end_answer()
    return json.dumps(messages, ensure_ascii=False, indent=1) + "\n"
