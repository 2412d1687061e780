"""Events as an iterator."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from .concurrency.deadline import Deadline, slice_of
from .concurrency.lanes import Lane
from .errors import RequestTimeoutError, WouldDeadlockError
from .events import Event, RTVIEvent
from .protocol.states import CloseInfo


class StreamOwner(Protocol):
    """Who pushes events to a stream."""

    lane: Lane

    def check_process(self) -> None:
        """Raise `ForkedProcessError` where no event can come."""

    def close_stream(self, stream: EventStream) -> None:
        """Push no more events."""


class EventStream:
    """The events of some types, one after the other. An iterator and a context manager; made by `client.events()`.

    It begins with its creation and ends with the session. One thread iterates at a time.
    """

    def __init__(
        self,
        owner: StreamOwner,
        types: frozenset[RTVIEvent],
        timeout: float | None,
        max_events: int,
        max_bytes: int,
    ) -> None:
        self._owner = owner
        self._types = types
        self._timeout = timeout
        self._max_events = max_events
        self._max_bytes = max_bytes
        #: The number of the session that it ends with.
        self.session = 0
        #: How the session before that ended, if nothing has followed it yet.
        self.after: CloseInfo | None = None
        # Guards `_events`, `_bytes` and `_ended`, and wakes whoever waits for one of them. Any thread may hold it, for
        # a moment.
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0
        self._ended: CloseInfo | None = None

    def wants(self, type_: RTVIEvent) -> bool:
        """True if events of `type_` are to be pushed."""
        return self._ended is None and (not self._types or type_ in self._types)

    def push(self, event: Event, size: int) -> bool:
        """Queue `event`; False if the stream is full. Called on the lane."""
        with self._changed:
            if len(self._events) >= self._max_events or self._bytes + size > self._max_bytes:
                return False
            self._events.append((event, size))
            self._bytes += size
            self._changed.notify()
        self._wake_manual()
        return True

    def end(self, info: CloseInfo) -> None:
        """No event will come any more; those queued are still handed out."""
        with self._changed:
            self._ended = info
            self._changed.notify_all()
        self._wake_manual()

    @property
    def ended(self) -> CloseInfo | None:
        """How the session ended, once the last event was handed out; None before."""
        with self._changed:
            return self._ended if not self._events else None

    def next_before(self, deadline: Deadline) -> Event | None:
        """The next event; None if the session ended first.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            WouldDeadlockError: called inside a handler of the same client, and nothing is queued: what is waited for
                could only come after the handler returns.
            ForkedProcessError: the session is the parent's.
        """
        lane = self._owner.lane
        while True:
            self._owner.check_process()
            with self._changed:
                if self._events:
                    event, size = self._events.popleft()
                    self._bytes -= size
                    return event
                if self._ended is not None:
                    return None
                if lane.is_current:
                    raise WouldDeadlockError(
                        "A handler waits for an event that can only be delivered after it returns. "
                        "Wait on another thread, or react to the event in a handler of its own."
                    )
                if not lane.manual:
                    self._changed.wait(slice_of(deadline.remaining()))
            if lane.manual:
                lane.run_queued(deadline, until=self._something_to_say)
            if deadline.expired and not self._something_to_say():
                raise RequestTimeoutError(f"No {self._describe()} within {deadline.timeout} s")

    def _something_to_say(self) -> bool:
        return bool(self._events) or self._ended is not None

    def _wake_manual(self) -> None:
        """In manual mode whoever waits does so at the lane."""
        if self._owner.lane.manual:
            self._owner.lane.wake()

    def _describe(self) -> str:
        return "event" if not self._types else " or ".join(sorted(t.value for t in self._types)) + " event"

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event = self.next_before(Deadline(self._timeout))
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening. Whoever waits for an event of this stream gets StopIteration."""
        self._owner.close_stream(self)
        self.end(CloseInfo())

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition(threading.Lock())
