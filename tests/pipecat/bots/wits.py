"""The simple rules of the bots' language models. It imports no Pipecat: all versions use it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_CALL = re.compile(r"call (\w+) (\{.*\})", re.DOTALL)


@dataclass
class Call:
    """A function that the model wants to be called."""

    function: str
    arguments: dict[str, Any]


def answer_to(messages: list[Any]) -> list[str] | Call:
    """Return a model's answer to a context in OpenAI's form: the tokens of its text, or a function call.

    `call get_weather {"city": "Oslo"}` calls a function, its result is answered with "The result is <JSON>.", and
    everything else with "You said: <the user's words>.".
    """
    if messages and messages[-1]["role"] == "tool":
        return _tokens(f"The result is {messages[-1]['content']}.")
    text = next((_text(message["content"]) for message in reversed(messages) if message["role"] == "user"), "")
    if match := _CALL.fullmatch(text):
        return Call(match[1], json.loads(match[2]))
    return _tokens(f"You said: {text.rstrip('.!? ')}.")


def _text(content: Any) -> str:
    """Return the words of a message; it may hold files too."""
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in content if "text" in part)


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S+", text)
