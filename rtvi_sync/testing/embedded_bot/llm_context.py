"""The LLM context of the embedded bot: the messages that a language model would be given."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from rtvi_sync.testing.embedded_bot.reply import Replies, Reply, choose_reply


class LLMContext:
    """Messages with `role` and `content`, and the script that replaces a language model. Any thread may use it.

    Args:
        replies: the script, as `EmbeddedBot` takes it.
        on_heard: called with the text of each message of a user.
    """

    def __init__(self, replies: Replies, on_heard: Callable[[str], None] | None = None) -> None:
        self._replies = replies
        self._on_heard = on_heard
        self._runs = itertools.count()
        # Guards _messages. Held for a moment by the threads of the session, of its actions and of the test.
        self._lock = threading.Lock()
        self._messages: list[dict[str, Any]] = []

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return a copy of all messages, oldest first."""
        with self._lock:
            return copy.deepcopy(self._messages)

    def extend(self, messages: Iterable[dict[str, Any]]) -> None:
        """Add messages at the end."""
        messages = list(messages)
        with self._lock:
            self._messages.extend(messages)
        for message in messages:
            if self._on_heard is not None and message.get("role") == "user":
                self._on_heard(_text(message))

    def replace(self, messages: Iterable[dict[str, Any]]) -> None:
        """Replace all messages by others."""
        with self._lock:
            self._messages = list(messages)

    def add(self, role: str, content: Any) -> None:
        """Add one message."""
        self.extend([{"role": role, "content": content}])

    @property
    def said(self) -> str:
        """Return what the user said last, "" if nothing."""
        return next((_text(message) for message in reversed(self.messages) if message.get("role") == "user"), "")

    def run(self, said: str) -> Reply:
        """Return the reply to what the user said, and add it as a message of the assistant."""
        reply = choose_reply(self._replies, said, next(self._runs))
        self.add("assistant", reply.text or reply.filler)
        return reply


def _text(message: dict[str, Any]) -> str:
    """Return the text of a message: its content, or the text parts of its content."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return " ".join(text for text in texts if isinstance(text, str))
