"""From an event to the program: handlers, signals and streams, in order, one event at a time per client."""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from . import signals
from .concurrency.deadline import Deadline, slice_of
from .concurrency.lanes import Lane, LaneOverflow
from .concurrency.lifecycle import register_for_fork
from .errors import DisconnectedError, RequestTimeoutError, WouldDeadlockError
from .events import Event, RTVIEvent, event_from
from .protocol.states import CloseInfo

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class HandlerError:
    """The payload of `handler_error`: a handler raised.

    Attributes:
        error: what it raised.
        event: the event it was handling.
        handler: the function.
    """

    error: BaseException
    event: Event
    handler: Callable[..., Any]


@attrs.define(eq=False)
class _Handler:
    function: Callable[..., Any]
    takes_payload: bool
    once: bool


class Dispatcher:
    """Who listens to the events of one client. Owned by the client; sessions and lanes refer to it weakly.

    Args:
        client: the sender that signals name. Held weakly.
        manual: events are delivered by `process_events()` only.
        max_events, max_bytes: limits of the queue.
    """

    def __init__(self, client: object, *, manual: bool, max_events: int, max_bytes: int) -> None:
        self._client = weakref.ref(client)
        self.lane = Lane(max_items=max_events, max_bytes=max_bytes, manual=manual)
        self._max_events = max_events
        # Guards the replacement of `_handlers` and `_streams`, which are never changed in place, and `serial`. Any
        # thread may hold it, for a few assignments.
        self._lock = threading.Lock()
        self._handlers: dict[RTVIEvent, tuple[_Handler, ...]] = {}
        self._streams: tuple[weakref.ref[EventStream], ...] = ()
        # The number of the session that is live, or of the next one. A stream ends with the session it was opened in.
        self.serial = 1
        register_for_fork(self)

    # -- registration: any thread -------------------------------------------------------------------------------------

    def add(self, event: str | RTVIEvent, function: Callable[..., Any], *, once: bool = False) -> None:
        """Call `function` for each `event`, or for the next one only."""
        type_ = event_from(event)
        handler = _Handler(function, _takes_payload(function), once)
        with self._lock:
            self._handlers = {**self._handlers, type_: (*self._handlers.get(type_, ()), handler)}

    def remove(self, event: str | RTVIEvent, function: Callable[..., Any] | None = None) -> None:
        """Call `function`, or nothing at all, for `event` any longer. An unknown function is no error."""
        type_ = event_from(event)
        with self._lock:
            kept = tuple(h for h in self._handlers.get(type_, ()) if function is not None and h.function != function)
            self._handlers = {**self._handlers, type_: kept}

    def open_stream(self, types: Iterable[str | RTVIEvent], timeout: float | None) -> EventStream:
        """A stream of the events of `types` (none: of all) from now on."""
        stream = EventStream(self, frozenset(map(event_from, types)), timeout, self._max_events)
        with self._lock:
            stream.serial = self.serial
            self._streams = (*(ref for ref in self._streams if ref() is not None), weakref.ref(stream))
        return stream

    def close_stream(self, stream: EventStream) -> None:
        with self._lock:
            self._streams = tuple(ref for ref in self._streams if ref() not in (None, stream))

    def session_ended(self, serial: int) -> None:
        """Streams opened from now on belong to the next session."""
        with self._lock:
            self.serial = max(self.serial, serial + 1)

    def wants(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_`. What nobody listens to is neither decoded nor queued."""
        return bool(
            self._handlers.get(type_)
            or signals.BY_EVENT[type_].receivers
            or any(s.wants(type_) for s in self._live_streams())
        )

    def _live_streams(self) -> list[EventStream]:
        return [stream for ref in self._streams if (stream := ref()) is not None]

    # -- delivery: on the client's lane -------------------------------------------------------------------------------

    def deliver(self, event: Event) -> None:
        """Hand `event` to everybody who listens.

        Streams come first: what they promise is that the handlers of *earlier* events have returned, and those of
        this one may take their time.

        Raises:
            LaneOverflow: a stream is full.
        """
        overflow = False
        for stream in self._live_streams():
            if stream.wants(event.type):
                overflow = not stream.push(event) or overflow
        client = self._client()
        if client is None:
            return
        for handler in self._handlers.get(event.type, ()):
            if handler.once and not self._take(event.type, handler):
                continue
            payload = (event.data,) if handler.takes_payload else ()
            self._call(handler.function, payload, event)
        for receiver in signals.BY_EVENT[event.type].receivers_of(client):
            self._call(receiver, (client, event), event)
        if overflow:
            raise LaneOverflow

    def end_streams(self, serial: int, info: CloseInfo) -> None:
        """The session `serial` has ended, and its last event was delivered to the streams."""
        for stream in self._live_streams():
            if stream.serial <= serial:
                stream.end(info)
                self.close_stream(stream)

    def _take(self, type_: RTVIEvent, handler: _Handler) -> bool:
        with self._lock:
            current = self._handlers.get(type_, ())
            if handler not in current:
                return False
            self._handlers = {**self._handlers, type_: tuple(h for h in current if h is not handler)}
            return True

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], event: Event) -> None:
        try:
            function(*arguments)
        except BaseException as error:
            # Whatever user code raises must not end the thread that serves other clients. On a thread of the user's
            # own, in manual mode, an exit or Ctrl-C is his.
            if self.lane.manual and not isinstance(error, Exception):
                raise
            logger.exception("A handler of %r raised", event.type.value)
            if event.type is not RTVIEvent.HANDLER_ERROR:
                failure = HandlerError(error=error, event=event, handler=function)
                self.deliver(Event(type=RTVIEvent.HANDLER_ERROR, data=failure, received_at=time.monotonic()))

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self.lane.after_fork_in_child()
        for stream in self._live_streams():
            stream.after_fork_in_child()


class EventStream:
    """The events of some types, one after the other. An iterator and a context manager; made by `client.events()`.

    It begins with its creation and ends with the session. One thread iterates at a time.
    """

    def __init__(
        self, dispatcher: Dispatcher, types: frozenset[RTVIEvent], timeout: float | None, max_events: int
    ) -> None:
        self._dispatcher = dispatcher
        self._types = types
        self._timeout = timeout
        self._max_events = max_events
        self.serial = 0
        # Guards `_events` and `_ended`, and wakes whoever waits for one of them. Any thread may hold it, for a moment.
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[Event] = deque()
        self._ended: CloseInfo | None = None

    def wants(self, type_: RTVIEvent) -> bool:
        return type_ in self._types or (not self._types and self._ended is None)

    def push(self, event: Event) -> bool:
        """Queue `event`; False if the stream is full. Called on the lane."""
        with self._changed:
            if len(self._events) >= self._max_events:
                return False
            self._events.append(event)
            self._changed.notify()
        return True

    def end(self, info: CloseInfo) -> None:
        """No event will come any more; those queued are still handed out."""
        with self._changed:
            self._ended = info
            self._changed.notify_all()
        self._dispatcher.lane.wake()

    @property
    def ended(self) -> CloseInfo | None:
        """How the session ended, once the last event was handed out; None before."""
        return self._ended if not self._events else None

    def next_before(self, deadline: Deadline) -> Event | None:
        """The next event; None if the session ended first.

        Raises:
            RequestTimeoutError: `deadline` passed first.
            WouldDeadlockError: called inside a handler of the same client, and nothing is queued: what is waited for
                could only come after the handler returns.
        """
        while True:
            with self._changed:
                if self._events:
                    return self._events.popleft()
                if self._ended is not None:
                    return None
                if self._dispatcher.lane.is_current:
                    raise WouldDeadlockError(
                        "A handler waits for an event that can only be delivered after it returns. "
                        "Wait on another thread, or react to the event in a handler of its own."
                    )
                if not self._dispatcher.lane.manual:
                    self._changed.wait(slice_of(deadline.remaining()))
            if self._dispatcher.lane.manual:
                self._dispatcher.lane.run_queued(deadline, until=self._something_to_say)
            if deadline.expired and not self._something_to_say():
                raise RequestTimeoutError(f"No {self._describe()} within {deadline.timeout} s")

    def _something_to_say(self) -> bool:
        return bool(self._events) or self._ended is not None

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
        self._dispatcher.close_stream(self)
        self.end(CloseInfo())

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._ended = CloseInfo(initiator="network")


def wait_for(
    dispatcher: Dispatcher, event: str | RTVIEvent, where: Callable[[Event], object] | None, timeout: float | None
) -> Event:
    """The next `event` for which `where(event)` is true. See `RTVIClient.wait_for()`."""
    deadline = Deadline(timeout)
    with dispatcher.open_stream([event], timeout) as stream:
        while True:
            found = stream.next_before(deadline)
            if found is None:
                info = stream.ended or CloseInfo()
                raise DisconnectedError(
                    f"The session ended before the {event_from(event).value} event came",
                    code=info.code,
                    reason=info.reason,
                    initiator=info.initiator,
                )
            if where is None or where(found):
                return found


def _takes_payload(function: Callable[..., Any]) -> bool:
    if not callable(function):
        raise TypeError(f"A handler is a function, not {function!r}")
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"{function!r} is a coroutine function; handlers are called, not awaited. Register a plain function."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-ins have none
        return True
    for arguments in ((None,), ()):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return bool(arguments)
    raise TypeError(f"A handler takes the payload or nothing; {function!r} needs more arguments")
