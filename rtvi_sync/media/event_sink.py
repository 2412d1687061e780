"""The event sink: the interface through which the media layer publishes events of the client."""

from __future__ import annotations

from typing import Any, Protocol

from ..events import RTVIEvent


class EventSink(Protocol):
    """A publisher of events; any thread may call it, and no method blocks or raises."""

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_`."""

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Return whether the application listens to `type_` by name, and not only to all events."""

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Publish an event."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Publish an event in place of the undelivered events of this type."""


class NullEventSink:
    """The event sink between two sessions: it discards all events."""

    def has_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def event(self, type_: RTVIEvent, data: Any = None) -> None:
        """Discard the event."""

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Discard the event."""
