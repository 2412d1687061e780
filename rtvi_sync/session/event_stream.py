"""Events as iterators, which end with the sessions of the client."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Notifier
from ..concurrency.serial_queue import SerialQueue
from ..errors import BotNotReadyError, ForkedProcessError, RequestTimeoutError, WouldDeadlockError
from ..events import DataT, Event, RTVIEvent, event_from
from ..protocol.dialects import load_payload
from ..protocol.states import CloseInfo

# How a closed stream ends: as if the client had ended the session.
_CLOSED = CloseInfo()


def forked_error() -> ForkedProcessError:
    """Return the error of a call that needs a session of the parent process."""
    return ForkedProcessError(
        "This client was connected when the process forked, so its session belongs to the parent. "
        "Make and connect a client in the child process: in a web worker, connect in the request or in a post-fork "
        "hook, not at import."
    )


class EventStream(Generic[DataT]):
    """The events of some types, one after the other. An iterator and a context manager; made by `client.events()`.

    It contains the events from its creation to the end of the session. One thread iterates at a time.
    """

    def __init__(
        self,
        owner: EventStreams,
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
        #: The number of bytes queued at which the stream is full.
        self.max_bytes: int = max_bytes
        #: Whether it continues in the session that replaces a lost one.
        self.outlives_loss: bool = outlives_loss
        #: The number of the session with which the stream ends.
        self.session: int = sys.maxsize
        #: How the session before that one ended, if none has followed it yet.
        self.after: CloseInfo | None = None
        #: The object that passes the events to the stream.
        self.keeps: object = None
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
        """Whether `event` arrived before the stream was opened, and was delivered after that."""
        return event.received_at < self._opened_at

    def push(self, event: Event[Any], size: int) -> bool:
        """Queue `event`. Return False if the stream is full. Called by the queue's worker."""
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
        """Discard the queued events. Called by the queue's worker."""
        with contextlib.suppress(IndexError):
            while True:
                self._bytes_pushed -= self._events.popleft()[1]

    def end(self, info: CloseInfo) -> None:
        """End the stream after the queued events."""
        self._ended = info
        self._wake()

    @property
    def ended(self) -> CloseInfo | None:
        """Return how the session ended, after the last event was taken; None before."""
        return self._ended if not self._events else None

    def next_before(self, deadline: Deadline) -> Event[DataT] | None:
        """Return the next event. None if the session ended first.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            WouldDeadlockError: Called in a handler of the same client while no event is queued. Events arrive only
                after the handler returns.
            ForkedProcessError: The session is the parent's.
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
                    "A wait was called inside a handler, for an event that can only be delivered after that returns. "
                    "Wait on another thread, or react to the event in a handler of its own."
                )
            if queue.manual:
                queue.run_queued(deadline, until=self._has_news)
            else:
                self._notifier.wait_for(self._has_news, deadline)
            if deadline.expired and not self._has_news():
                raise RequestTimeoutError(
                    f"No {self._describe()} within {deadline.timeout} s. "
                    "Pass a larger timeout, or start to listen before its cause."
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
        self._owner.remove(self)
        self.end(_CLOSED)


class EventStreams:
    """The streams of one client, and the state that ends them: the sessions that started, and how the last one ended.

    Args:
        queue: The client's queue.
        max_events: Limit of each stream's queue.
        max_bytes: Limit of each stream's queue, in bytes.
    """

    # Mutable state, changed in single steps and without a lock, like the bus.

    def __init__(self, queue: SerialQueue, max_events: int, max_bytes: int) -> None:
        self.queue = queue
        self._limits = (max_events, max_bytes)
        #: By identity.
        self.open: dict[int, weakref.ref[EventStream]] = {}
        #: The number of sessions that have started, and so the number of the last one. They start one at a time.
        self.sessions: int = 0
        # The last session whose last events were delivered or are being delivered, and how it ended. None: it was an
        # attempt of a `connect()` that may make another one. Written by the queue's worker.
        self._over: tuple[int, CloseInfo | None] = (0, None)
        # The last session that might have been replaced but was not, and how it ended. Written by the thread that
        # makes no further attempt.
        self._given_up: tuple[int, CloseInfo | None] = (0, None)
        self._closed = False  # the client is closed: no further session starts
        self._forked = False

    def live(self) -> list[EventStream]:
        """Return the open streams."""
        return [stream for ref in self.open.copy().values() if (stream := ref()) is not None]

    def add(
        self, types: Iterable[str | RTVIEvent], timeout: float | None, *, outlives_loss: bool = False
    ) -> EventStream:
        """Return a stream of the events of `types` (none: all events) from now on.

        Args:
            types: Types of the events.
            timeout: Seconds to wait for each.
            outlives_loss: Whether it continues in the session that replaces a lost one.

        Raises:
            ForkedProcessError: The session is the parent's.
        """
        self.check_process()
        wanted = frozenset(event_from(type_, "events") for type_ in types)
        for type_ in wanted or RTVIEvent:
            load_payload(type_)
        stream = EventStream(self, wanted, timeout, *self._limits, outlives_loss=outlives_loss)
        key, streams = id(stream), self.open
        streams[key] = weakref.ref(stream, lambda _: streams.pop(key, None))
        while True:
            over, info = self.last_over
            # The stream ends with the live session, or with the next one.
            stream.session = max(self.sessions, over + 1)
            stream.after = info if self.sessions == over > 0 else None
            if self.last_over[0] == over:
                if self._closed and stream.session > self.sessions:
                    stream.end(info or CloseInfo())
                return stream
            # A session ended between the two reads of `last_over`, and its end may have missed the stream.

    def remove(self, stream: EventStream) -> None:
        """Push no more events to `stream`."""
        self.open.pop(id(stream), None)

    def push(self, event: Event, size: int) -> bool:
        """Queue `event` in each stream that takes it; return False if one is full. Called by the queue's worker."""
        streams = [stream for stream in self.live() if stream.has_listener(event.type)]
        if event.type.starts == "once":  # a stream that was opened after connect() returned waits for the next session
            streams = [stream for stream in streams if not stream.is_stale(event)]
        pushed = [stream.push(event, size) for stream in streams]
        return all(pushed)

    # -- waiting ------------------------------------------------------------------------------------------------------

    def wait_for(self, event: str | RTVIEvent, where: Callable[[Event], object] | None, timeout: float | None) -> Event:
        """Wait for the next `event` for which `where(event)` is true. See `RTVIClient.wait_for()`."""
        type_ = event_from(event)
        deadline = Deadline(timeout)
        with self.add([type_], timeout) as stream:
            if stream.after is not None and not type_.starts:
                raise stream.after.as_error(f"the {type_.value} event arrived")
            while True:
                found = stream.next_before(deadline)
                if found is None:
                    raise (stream.ended or CloseInfo()).as_error(f"the {type_.value} event arrived")
                if where is None or where(found):
                    return found

    def wait_for_end(self, timeout: float | None) -> CloseInfo:
        """Wait until the session and those that replace it have ended. See `RTVIClient.wait()`."""
        deadline = Deadline(timeout)
        with self.add([RTVIEvent.DISCONNECTED], None, outlives_loss=True) as stream:
            if not self.sessions:
                raise BotNotReadyError("There is no session whose end could be awaited: call connect() first")
            if stream.after is not None and not stream.after.reconnecting:
                return stream.after
            try:
                while stream.next_before(deadline) is not None:
                    pass  # `disconnected` of a session that is replaced
            except RequestTimeoutError:
                raise RequestTimeoutError(
                    f"The session has not ended within {timeout} s. Pass a larger timeout, or call disconnect()."
                ) from None
            return stream.ended or CloseInfo()

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def last_over(self) -> tuple[int, CloseInfo | None]:
        """The number of the last ended session, and how it ended. None: `connect()` may make another one."""
        return self._given_up if self._given_up[0] >= self._over[0] else self._over

    @property
    def awaits_replacement(self) -> bool:
        """True if the last session has ended and another one was supposed to replace it."""
        number, info = self.last_over
        return number == self.sessions and info is not None and info.reconnecting

    @property
    def gave_up(self) -> bool:
        """True if it is certain that the last session is not replaced, although it was supposed to."""
        return self._given_up[0] == self.sessions > 0

    def start_session(self) -> int:
        """Start a session, and return its number."""
        self.sessions += 1
        return self.sessions

    def session_over(self, number: int, info: CloseInfo | None) -> None:
        """Record how a session ended (`info` as in `last_over`), before its last event is delivered. Streams that are
        opened from now on belong to the next session.
        """
        if number >= self._over[0]:
            self._over = number, info

    def end_session(self, number: int, info: CloseInfo) -> None:
        """End the streams of a session whose last event was delivered."""
        for stream in self.live():
            if stream.session > number:
                continue
            is_opening = bool(stream.types) and all(type_.starts for type_ in stream.types)
            if info.reconnecting and (is_opening or stream.outlives_loss):
                stream.session = number + 1  # a stream that waits for a session waits for the one that replaces it
            else:
                stream.end(info)
                self.remove(stream)

    def end_for_good(self, info: CloseInfo) -> None:
        """End the streams that wait for a further session, now and later: no session will start."""
        self._closed = True
        over, last = self._over
        if over == self.sessions and last is not None and last.reconnecting:
            self._over = over, info  # before the streams, so that one that is opened now is ended or knows
        for stream in self.live():
            if stream.session > self.sessions:
                stream.end(info)
                self.remove(stream)

    def give_up(self, info: CloseInfo, number: int | None = None) -> Callable[[], None]:
        """Return a queue item that closes all currently open streams: the session that they wait for will not start.

        Args:
            info: How the last session ended.
            number: The number of that session; None: the session that started last.
        """
        if number is not None and number < self.sessions:
            return lambda: None  # the streams continue with the session that another thread has started
        info = attrs.evolve(info, reconnecting=False)
        # Before the streams, so that one that is opened now is ended or knows.
        self._given_up = self.sessions if number is None else number, info
        streams = self.open.copy()  # not those that the application opens before the item runs

        def end() -> None:
            for key, ref in streams.items():
                if key in self.open and (stream := ref()) is not None:  # else it has ended or was closed since
                    stream.end(info)
                    self.remove(stream)

        return end

    # -- fork ---------------------------------------------------------------------------------------------------------

    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a child that was forked while a session was live."""
        if self._forked:
            raise forked_error()

    def lose_session(self) -> None:
        """Mark the session as the parent's. In a forked child, on its only thread."""
        self._forked = True
