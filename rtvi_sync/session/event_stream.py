"""Events as an iterator."""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.serial_queue import SerialQueue
from ..errors import RequestTimeoutError, WouldDeadlockError
from ..events import DataT, Event, RTVIEvent
from ..protocol.states import CloseInfo

# How a stream ends that is closed: as if the client had ended the session.
_CLOSED = CloseInfo()


class StreamOwner(Protocol):
    """What pushes events to a stream."""

    queue: SerialQueue

    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a process in which no event can come."""

    def close_stream(self, stream: EventStream[Any]) -> None:
        """Stop pushing events to `stream`."""


class EventStream(Generic[DataT]):
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
        *,
        outlives_loss: bool = False,
    ) -> None:
        self._owner = owner
        self.types = types
        self._opened_at = monotonic()
        self._timeout = timeout
        self._max_events = max_events
        #: How much is queued before the stream is full.
        self.max_bytes: int = max_bytes
        #: Whether it goes on in the session that replaces a lost one.
        self.outlives_loss: bool = outlives_loss
        #: The number of the session with which the stream ends.
        self.session: int = sys.maxsize
        #: How the session before that ended, if none has followed it yet.
        self.after: CloseInfo | None = None
        # The worker appends and the iterating thread pops, each in one step. There is no lock, because the iterating
        # thread could hold it while a signal handler on it waits for the worker.
        self._events: deque[tuple[Event[DataT], int]] = deque()
        self._bytes_pushed = 0
        self._bytes_taken = 0
        self._ended: CloseInfo | None = None
        self._notifier = Notifier()

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Whether to push events of `type_`."""
        return self._ended is None and (not self.types or type_ in self.types)

    def is_stale(self, event: Event) -> bool:
        """Whether `event` arrived before the stream was opened and is delivered only now."""
        return event.received_at < self._opened_at

    def push(self, event: Event[Any], size: int) -> bool:
        """Queue `event`; return False if the stream is full. Called by the queue's worker."""
        queued_bytes = self._bytes_pushed - self._bytes_taken
        # A single event always finds room: a turn may hold more than the limit, and ask() waits for one.
        is_over = queued_bytes + size > self.max_bytes and self._events
        if is_over or len(self._events) >= self._max_events:
            return False
        self._bytes_pushed += size
        self._events.append((event, size))
        self._wake()
        return True

    def clear(self) -> None:
        """Discard the events that are queued. Called by the queue's worker."""
        with contextlib.suppress(IndexError):
            while True:
                self._bytes_pushed -= self._events.popleft()[1]

    def end(self, info: CloseInfo) -> None:
        """End the stream after the events that are queued."""
        self._ended = info
        self._wake()

    @property
    def ended(self) -> CloseInfo | None:
        """Return how the session ended, after the last event was taken; None before."""
        return self._ended if not self._events else None

    def next_before(self, deadline: Deadline) -> Event[DataT] | None:
        """Return the next event; None if the session ended first.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            WouldDeadlockError: called inside a handler of the same client while nothing is queued: the event could only
                come after the handler returns.
            ForkedProcessError: the session is the parent's.
        """
        queue = self._owner.queue
        while True:
            self._owner.check_process()
            over = self._ended is not None  # read before the queue, because events queued before the end still count
            try:
                event, size = self._events.popleft()
            except IndexError:
                if over:
                    return None
            else:
                self._bytes_taken += size
                return event
            if queue.is_current:
                raise WouldDeadlockError(
                    "A handler waits for an event that can only be delivered after it returns. "
                    "Wait on another thread, or react to the event in a handler of its own."
                )
            if queue.manual:
                queue.run_queued(deadline, until=self._has_news)
            else:
                self._notifier.wait_for(self._has_news, deadline)
            if deadline.expired and not self._has_news():
                raise RequestTimeoutError(
                    f"No {self._describe()} within {deadline.timeout} s. "
                    "Pass a larger timeout, or begin to listen before what causes it."
                )

    def _has_news(self) -> bool:
        return bool(self._events) or self._ended is not None

    def _wake(self) -> None:
        if self._owner.queue.manual:
            self._owner.queue.wake()  # the waiting call waits there
        else:
            self._notifier.notify_all()

    def _describe(self) -> str:
        return "event" if not self.types else " or ".join(sorted(t.value for t in self.types)) + " event"

    def __iter__(self) -> Iterator[Event[DataT]]:
        return self

    def __next__(self) -> Event[DataT]:
        event = self.next_before(Deadline(self._timeout))
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> EventStream[DataT]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening. A call that waits for an event of this stream gets StopIteration."""
        self._owner.close_stream(self)
        self.end(_CLOSED)
