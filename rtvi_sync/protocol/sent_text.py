"""The user's words to the language model in a message to the bot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .message import RTVIMessage

#: The types of messages that may say or do something in a conversation.
SAYING = frozenset({"send-text", "send-file", "append-to-context", "action", "llm-function-call-result", "dtmf"})


class SentText(NamedTuple):
    """The user's words in a message.

    Attributes:
        text: The words. "" if there are none, as with a file.
        runs: True if the model answers now.
        aloud: True if the bot should speak the answer.
    """

    text: str
    runs: bool
    aloud: bool = True


def sent_text(message: RTVIMessage) -> SentText | None:
    """Return the user's words in a checked message. None: it has none.

    `send-text` and `send-file` have them from Pipecat 0.0.86 on, `append-to-context` from 0.0.76 to 0.0.108. Before
    that, the action `append_to_messages` has them, in any service.
    """
    data = message.data if isinstance(message.data, Mapping) else {}
    if message.type in ("send-text", "send-file"):
        options = data.get("options")
        options = options if isinstance(options, Mapping) else {}
        runs, aloud = options.get("run_immediately", True), options.get("audio_response", True)
        return SentText(_text(data.get("content")), bool(runs), bool(aloud))
    if message.type == "append-to-context":
        return SentText(_text(data.get("content")), bool(data.get("run_immediately", False)))
    if message.type == "action" and data.get("action") == "append_to_messages":
        arguments = data.get("arguments")
        given = {each.get("name"): each.get("value") for each in _mappings(arguments)}
        contents = [_text(each.get("content")) for each in _mappings(given.get("messages"))]
        return SentText(" ".join(contents), bool(given.get("run_immediately", False)))
    return None


def pressed_keys(data: Any) -> str:
    """Return the keys of a telephone in the data of a `dtmf` message."""
    given = data if isinstance(data, Mapping) else {}
    keys = given.get("buttons", [given.get("button")])
    return "".join(key for key in keys if isinstance(key, str)) if isinstance(keys, list) else ""


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return [each for each in value if isinstance(each, Mapping)] if is_list else []


def _text(content: Any) -> str:
    """Return the text of a content, which is a text itself, or a list of parts, some of them texts."""
    if isinstance(content, str):
        return content
    return " ".join(part["text"] for part in _mappings(content) if isinstance(part.get("text"), str))
