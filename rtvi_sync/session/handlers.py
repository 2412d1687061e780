"""Handlers of events, and how each is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from ..messages import RTVIMessage
from ..protocol import envelope
from ..protocol.validation import FUNCTION, name_of, takes

Cause: TypeAlias = str | bytes | RTVIMessage
"""A message of the bot, or its text, which takes less memory while its event is queued: it is parsed again if a handler
reads the message."""


def message_of(cause: Cause) -> RTVIMessage:
    """Return the message that caused an event."""
    return cause if isinstance(cause, RTVIMessage) else envelope.decode(cause)


@attrs.define(eq=False, repr=False)
class SpecialHandler:
    """A handler that is not called with each payload."""

    function: Callable[..., Any]
    takes_payload: bool
    once: bool
    messages: frozenset[str] | None = None  # wire types: the handler is called with the messages of these instead

    def call(self, data: Any, cause: Cause | None) -> None:
        """Call the handler with what it takes."""
        if self.takes_payload:
            self.function(data)
        elif self.messages is None:
            self.function()
        elif cause is not None and (message := message_of(cause)).type in self.messages:
            self.function(message)


# Most handlers are stored as they are. A client with handlers for all events has 70 of them, a third of its memory.
Handler: TypeAlias = Callable[..., Any] | SpecialHandler


def function_of(handler: Handler) -> Callable[..., Any]:
    """Return the application's function of a handler."""
    return handler.function if isinstance(handler, SpecialHandler) else handler


def takes_payload(function: Callable[..., Any], name: str = "handler") -> bool:
    """Tell whether a handler, the value of the option `name`, is to be called with the payload.

    Raises:
        TypeError: it can be called neither with it nor without, or the call would not run its code.
    """
    FUNCTION.check_one(name, function)
    for follow_wrapped in (True, False):
        for arguments in ((None,), ()):
            if takes(function, *arguments, follow_wrapped=follow_wrapped):
                return bool(arguments)
    raise TypeError(f"{name} must take the payload or nothing; {name_of(function)} needs more arguments")
