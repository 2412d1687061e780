"""The events of a session as a page gets them: as JSON, from a log that every stream reads at its own pace."""

from __future__ import annotations

import itertools
import json
import secrets
import threading
from collections import deque
from typing import Any, Final, NamedTuple

import attrs

from ..events import RTVIEvent

_MAX_BYTES: Final = 1024 * 1024
# Inside of a <script> too, where JSON is valid JavaScript, none of these can begin or end anything.
_HTML_SAFE: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


class Place(NamedTuple):
    """How far a stream has read: the number of the last event, and of the last change of a level."""

    event: int = 0
    level: int = 0


class EventLog:
    """The last events of a session and the newest level of each kind, ready to be sent.

    A browser that is slow or away costs nothing and holds up nobody. What is gone before it was read is counted, and
    the number sent.
    """

    def __init__(self, max_events: int) -> None:
        # The ids of an earlier session's events are not places in this one.
        self._name = secrets.token_hex(4)
        self._max_events = max_events
        # Guards the fields below, and wakes the streams. Held for a moment by any thread.
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[bytes] = deque()
        self._bytes = 0
        self._place = Place()
        self._levels: dict[RTVIEvent, tuple[int, bytes]] = {}
        self._wakes = 0
        self._closed = False

    def add(self, text: str) -> None:
        """Append an event, given as JSON in one line."""
        with self._changed:
            if self._closed:
                return
            self._place = self._place._replace(event=self._place.event + 1)
            chunk = f"id: {self._name}.{self._place.event}\ndata: {text}\n\n".encode()
            self._events.append(chunk)
            self._bytes += len(chunk)
            # The newest is kept, whatever its size.
            while len(self._events) > 1 and (self._bytes > _MAX_BYTES or len(self._events) > self._max_events):
                self._bytes -= len(self._events.popleft())
            self._changed.notify_all()

    def replace(self, level: RTVIEvent, text: str) -> None:
        """Set the newest level of a kind, likewise."""
        with self._changed:
            self._place = self._place._replace(level=self._place.level + 1)
            self._levels[level] = (self._place.level, f"data: {text}\n\n".encode())
            self._changed.notify_all()

    def wake(self) -> None:
        """Let all who wait in `read()` return with what there is, be it nothing."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing will follow."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def place_of(self, last_event_id: str) -> Place:
        """The place after the event that a browser saw last; the beginning if it is none of this log's."""
        name, _, number = last_event_id.partition(".")
        if name != self._name or not (number.isascii() and number.isdecimal() and len(number) < 20):
            return Place()
        with self._changed:
            return Place(int(number)) if int(number) <= self._place.event else Place()

    def read(self, place: Place, timeout: float) -> tuple[Place, bytes | None]:
        """Wait for what follows `place`.

        Returns:
            The new place, and what is to be sent: nothing when `timeout` seconds have passed or somebody has called
            `wake()`, None after the end.
        """
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self._closed or self._place != place or self._wakes != wakes, timeout)
            if self._place == place:
                return place, None if self._closed else b""
            new = self._place.event - place.event
            missed = new - len(self._events)
            chunks = [f"data: {as_json('relayGap', {'missed': missed})}\n\n".encode()] if missed > 0 else []
            chunks += itertools.islice(self._events, max(0, -missed), None)
            chunks += [chunk for change, chunk in self._levels.values() if change > place.level]
            return self._place, b"".join(chunks)


def as_json(event: str, data: Any) -> str:
    """An event as JSON in one line of ASCII that no HTML parser takes for markup."""
    document = {"event": event, "data": data}
    try:
        text = json.dumps(document, default=_fields, allow_nan=False)
    except ValueError:  # Python servers do send NaN, which no browser reads
        text = json.dumps(json.loads(json.dumps(document, default=_fields), parse_constant=lambda _: None))
    return text.translate(_HTML_SAFE)


def _fields(value: Any) -> dict[str, Any] | None:
    """A payload by the fields that its class knows and that are there.

    None for what is not to leave the process, such as exceptions.
    """
    if not attrs.has(type(value)):
        return None
    names = [field.name for field in attrs.fields(type(value)) if field.name != "extra"]
    return {name: getattr(value, name) for name in names if getattr(value, name) is not None}
