"""The events of a session, as JSON for the pages that show it."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import attrs

from ..events import RTVIEvent

_MAX_LOG_BYTES: Final = 1024 * 1024
# Bytes that an event counts beside its text.
_EVENT_BYTES: Final = 32
# Escaped, so that the JSON is safe inside a <script>: these characters could be read as markup.
_HTML_SAFE: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


class Position(NamedTuple):
    """Read position of a page: the number of the last event, and of the last change of a level."""

    event: int = 0
    level: int = 0


class LoggedEvent(NamedTuple):
    """An event as JSON in one line of ASCII, and its id; "" for an event that is not kept, such as a level."""

    text: str
    id: str = ""

    def as_chunk(self) -> bytes:
        """Return the event for an event stream."""
        return (f"id: {self.id}\ndata: {self.text}\n\n" if self.id else f"data: {self.text}\n\n").encode()

    def as_message(self) -> str:
        """Return the event for a WebSocket: JSON that includes the id."""
        return f'{self.text[:-1]}, "id": "{self.id}"}}' if self.id else self.text


class EventLog:
    """The last events of a session and the newest audio level of each kind.

    A slow or absent browser costs no memory and delays no other. Events that were dropped before a page read them are
    counted, and the page gets their number.
    """

    def __init__(self, max_events: int) -> None:
        # Prefix of the event ids; the ids of another session have another prefix.
        self._name = secrets.token_hex(4)
        self._max_events = max_events
        # Guards the fields below, and wakes the streams. Any thread holds it for a few instructions.
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[LoggedEvent] = deque()
        self._bytes = 0
        # Events added since the oldest open block of `after()`, in order. An empty list stands for an open block.
        self._held: deque[list[str]] = deque()
        self._position = Position()
        self._levels: dict[RTVIEvent, tuple[int, LoggedEvent]] = {}
        self._followers: list[Callable[[], object]] = []
        self._wakes = 0
        self._closed = False

    def add(self, text: str) -> None:
        """Append an event, given as JSON in one line."""
        with self._changed:
            self._held.append([text])
            self._append_held()

    @contextlib.contextmanager
    def after(self, text: str) -> Iterator[None]:
        """Append an event at the end of the block, before all events added during it. None if the block raises."""
        own: list[str] = []
        with self._changed:
            self._held.append(own)
        try:
            yield
        except BaseException:
            with self._changed:
                self._held = deque(held for held in self._held if held is not own)
                self._append_held()
            raise
        with self._changed:
            own.append(text)
            self._append_held()

    def _append_held(self) -> None:
        """Append the held events up to the oldest open block. Call it with the lock held."""
        while self._held and self._held[0]:
            (text,) = self._held.popleft()
            if self._closed:
                continue
            self._position = self._position._replace(event=self._position.event + 1)
            self._events.append(LoggedEvent(text, f"{self._name}.{self._position.event}"))
            self._bytes += len(text) + _EVENT_BYTES
        # The newest event is kept, whatever its size.
        while len(self._events) > 1 and (self._bytes > _MAX_LOG_BYTES or len(self._events) > self._max_events):
            self._bytes -= len(self._events.popleft().text) + _EVENT_BYTES
        self._notify()

    def replace(self, level: RTVIEvent, text: str) -> None:
        """Replace the newest level of a kind, given as JSON in one line."""
        with self._changed:
            self._position = self._position._replace(level=self._position.level + 1)
            self._levels[level] = (self._position.level, LoggedEvent(text))
            self._notify()

    def wake(self) -> None:
        """Make all blocked calls of `read()` return, with or without events."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End the log: no event follows. Idempotent."""
        with self._changed:
            self._held = deque(held for held in self._held if held)
            self._append_held()
            self._closed = True
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for follower in self._followers:
            follower()

    @contextlib.contextmanager
    def followed_by(self, follower: Callable[[], object]) -> Iterator[None]:
        """Call a function after each change, while the block runs. The function must not block or use the log."""
        with self._changed:
            self._followers.append(follower)
        try:
            yield
        finally:
            with self._changed:
                self._followers.remove(follower)

    def position_after(self, last_event_id: str) -> Position:
        """Return the position after the event with this id, or the start if this log has no such event."""
        name, _, number = last_event_id.partition(".")
        if name != self._name or not (number.isascii() and number.isdecimal() and len(number) < 20):
            return Position()
        with self._changed:
            return Position(int(number)) if int(number) <= self._position.event else Position()

    def read(self, position: Position, timeout: float) -> tuple[Position, list[LoggedEvent] | None]:
        """Wait for the events after `position`.

        Returns:
            The new position, and the events: none after `timeout` seconds or a call of `wake()`, and None after the end
            of the log.
        """
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self._closed or self._position != position or self._wakes != wakes, timeout)
            if self._position == position:
                return position, None if self._closed else []
            new = self._position.event - position.event
            missed = new - len(self._events)
            events = [LoggedEvent(as_json("relayGap", {"missed": missed}))] if missed > 0 else []
            events += itertools.islice(self._events, max(0, -missed), None)
            events += [event for change, event in self._levels.values() if change > position.level]
            return self._position, events


def as_json(event: str, data: Any) -> str:
    """Return an event as JSON in one line of ASCII without characters of HTML markup."""
    document = {"event": event, "data": data}
    try:
        text = json.dumps(document, default=_fields, allow_nan=False)
    except ValueError:  # some Python servers send NaN, which browsers cannot parse
        text = json.dumps(json.loads(json.dumps(document, default=_fields), parse_constant=lambda _: None))
    return text.translate(_HTML_SAFE)


def _fields(value: Any) -> dict[str, Any] | None:
    """Return the fields of a payload that its class declares and that are not None.

    None for other objects, such as exceptions, which must not leave the process.
    """
    if not attrs.has(type(value)):
        return None
    names = [field.name for field in attrs.fields(type(value)) if field.name != "extra"]
    return {name: getattr(value, name) for name in names if getattr(value, name) is not None}
