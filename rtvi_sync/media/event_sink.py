"""Where the devices tell what becomes of them: the seam between the media and the client's events."""

from __future__ import annotations

from typing import Any, Protocol

from ..events import RTVIEvent


class EventSink(Protocol):
    """Takes events. Any thread may call it; nothing of it blocks or raises."""

    def has_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_`."""

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_` by its name, and not only to all that happens."""

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Tell the program."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Tell the program, in place of what it was not told yet of this type."""


class NullEventSink:
    """The event_sink while there is nobody to tell."""

    def has_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        return False

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        return False

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Nobody hears it."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Nobody hears it."""
