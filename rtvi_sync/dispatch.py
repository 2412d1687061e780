"""From an event to the program: handlers, signals and streams, in order, one event at a time per client."""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from . import signals
from .concurrency.deadline import Deadline
from .concurrency.lanes import Lane
from .concurrency.lifecycle import register_for_fork
from .errors import ForkedProcessError, RTVIError, WouldDeadlockError
from .events import Event, RTVIEvent, event_from
from .messages import RTVIMessage
from .protocol.dialects import INBOUND
from .protocol.states import CloseInfo
from .streams import EventStream

logger: logging.Logger = logging.getLogger(__name__)

# What comes first in a session: it may be waited for before there is one.
_OPENING = frozenset(
    {
        RTVIEvent.TRANSPORT_STATE_CHANGED,
        RTVIEvent.CONNECTED,
        RTVIEvent.BOT_STARTED,
        RTVIEvent.BOT_CONNECTED,
        RTVIEvent.BOT_READY,
        RTVIEvent.RECONNECTING,
        RTVIEvent.RECONNECT_FAILED,
    }
)


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


def forked_error() -> ForkedProcessError:
    """For a call that needs a session which only the parent process has."""
    return ForkedProcessError(
        "This client was connected when the process forked, so its session belongs to the parent. "
        "Make and connect a client in the child process: in a web worker, connect in the request or in a post-fork "
        "hook, not at import."
    )


@attrs.define(eq=False)
class _Handler:
    function: Callable[..., Any]
    takes_payload: bool
    once: bool
    messages: frozenset[str] | None = None  # wire types: it takes the messages of these instead

    def wants(self, event: Event) -> bool:
        return self.messages is None or (event.message is not None and event.message.type in self.messages)

    def arguments(self, event: Event) -> tuple[Any, ...]:
        if self.messages is not None:
            return (event.message,)
        return (event.data,) if self.takes_payload else ()


class Dispatcher:
    """Who listens to the events of one client. Owned by the client; sessions and lanes refer to it weakly.

    Args:
        client: the sender that signals name. Held weakly.
        manual: events are delivered by `process_events()` only.
        max_events, max_bytes: limits of the queue, and of each stream's.
    """

    def __init__(self, client: object, *, manual: bool, max_events: int, max_bytes: int) -> None:
        self._client = weakref.ref(client)
        self.lane: Lane = Lane(max_items=max_events, max_bytes=max_bytes, manual=manual)
        self._limits = (max_events, max_bytes)
        # There is no lock, which a thread of the program's could hold while a signal handler on it waits for an event:
        # the lists and the dicts are changed in single steps, and walked in copies.
        self._handlers: dict[RTVIEvent, list[_Handler]] = {}
        self._streams: dict[int, weakref.ref[EventStream]] = {}  # by identity
        #: The program's functions that a bot may call, by name; under None, the one for all other names.
        self.functions: dict[str | None, Callable[..., Any]] = {}
        # Sessions are numbered from 1; they begin one at a time.
        self._begun = 0
        # The last session whose last events were, or are being, delivered, and how it ended. Written on the lane.
        self._over = (0, CloseInfo())
        #: The thread that is in a handler now, for whoever has to tell why it takes so long.
        self.busy_thread: threading.Thread | None = None
        self._tally = threading.local()
        self._forked = False
        register_for_fork(self)

    # -- registration: any thread -------------------------------------------------------------------------------------

    def add(self, event: str | RTVIEvent, function: Callable[..., Any], *, once: bool = False) -> None:
        """Call `function` for each `event`, or for the next one only."""
        type_ = event_from(event)
        self._handlers.setdefault(type_, []).append(_Handler(function, takes_payload(function), once))

    def remove(self, event: str | RTVIEvent, function: Callable[..., Any] | None = None) -> None:
        """Call `function`, or nothing at all, for `event` any longer. An unknown function is no error."""
        type_ = event_from(event)
        for handler in self._handlers_of(type_):
            if handler.messages is None and (function is None or handler.function == function):
                self._take(handler, type_)

    def add_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Call `function` with each message of the bot that is of these wire types, in the order of the events."""
        for type_ in set(map(_event_of, messages)):
            handler = _Handler(function, takes_payload=False, once=False, messages=messages)
            self._handlers.setdefault(type_, []).append(handler)

    def remove_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Take back what `add_helper()` did."""
        for type_ in set(map(_event_of, messages)):
            for handler in self._handlers_of(type_):
                if handler.messages is not None and handler.function == function:
                    self._take(handler, type_)

    def open_stream(self, types: Iterable[str | RTVIEvent], timeout: float | None) -> EventStream:
        """A stream of the events of `types` (none: of all) from now on.

        Raises:
            ForkedProcessError: the session is the parent's.
        """
        self.check_process()
        stream = EventStream(self, frozenset(map(event_from, types)), timeout, *self._limits)
        key, streams = id(stream), self._streams
        streams[key] = weakref.ref(stream, lambda _: streams.pop(key, None))
        while True:
            over, info = self._over
            # It ends with the session that is live, or with the next one.
            stream.session = max(self._begun, over + 1)
            stream.after = info if self._begun == over > 0 else None
            if self._over[0] == over:
                return stream
            # A session was over in this very moment, and may have passed by the stream.

    def wait_for(self, event: str | RTVIEvent, where: Callable[[Event], object] | None, timeout: float | None) -> Event:
        """The next `event` for which `where(event)` is true. See `RTVIClient.wait_for()`."""
        type_ = event_from(event)
        deadline = Deadline(timeout)
        with self.open_stream([type_], timeout) as stream:
            if stream.after is not None and type_ not in _OPENING:
                raise stream.after.as_error(f"the {type_.value} event came")
            while True:
                found = stream.next_before(deadline)
                if found is None:
                    raise (stream.ended or CloseInfo()).as_error(f"the {type_.value} event came")
                if where is None or where(found):
                    return found

    def close_stream(self, stream: EventStream) -> None:
        """Push no more events to `stream`."""
        self._streams.pop(id(stream), None)

    def wants(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_`. What nobody listens to is neither decoded nor queued."""
        signal = signals.BY_EVENT[type_]
        return bool(
            self._handlers.get(type_)
            or any(s.wants(type_) for s in self._live_streams())
            or (signal.receivers and signal.has_receivers_for(self._client()))
        )

    def _live_streams(self) -> list[EventStream]:
        return [stream for ref in self._streams.copy().values() if (stream := ref()) is not None]

    def _handlers_of(self, type_: RTVIEvent) -> list[_Handler]:
        return self._handlers.get(type_, []).copy()

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> int:
        """How many have begun."""
        return self._begun

    def begin_session(self) -> int:
        """A session begins. Returns its number."""
        self._begun += 1
        return self._begun

    def session_over(self, number: int, info: CloseInfo) -> None:
        """The last event of a session is about to be delivered: streams opened from now on belong to the next."""
        if number >= self._over[0]:
            self._over = number, info

    def end_streams(self, number: int, info: CloseInfo) -> None:
        """The last event of a session was delivered."""
        for stream in self._live_streams():
            if stream.session > number:
                continue
            if stream.types and stream.types <= _OPENING and info.reconnecting:
                stream.session = number + 1  # who waits for a session waits for the one that replaces it
            else:
                stream.end(info)
                self.close_stream(stream)

    def end_sessions(self, info: CloseInfo) -> None:
        """There will be no further session: streams that wait for one end."""
        for stream in self._live_streams():
            if stream.session > self._begun:
                stream.end(info)
                self.close_stream(stream)

    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a child that was forked while a session was live."""
        if self._forked:
            raise forked_error()

    # -- delivery: on the client's lane -------------------------------------------------------------------------------

    def deliver(self, event: Event, size: int = 0) -> bool:
        """Hand `event` to everybody who listens; False if it was too much for a stream."""
        self._tally.count = getattr(self._tally, "count", 0) + 1
        self.busy_thread = threading.current_thread()
        try:
            return self._hand_out(event, size)
        finally:
            self.busy_thread = None

    def _hand_out(self, event: Event, size: int) -> bool:
        """Streams come first: what they promise is that the handlers of *earlier* events have returned, and those of
        this one may take their time.
        """
        taken = [stream.push(event, size) for stream in self._live_streams() if stream.wants(event.type)]
        client = self._client()
        if client is None:
            return all(taken)
        for handler in self._handlers_of(event.type):
            if not handler.wants(event) or (handler.once and not self._take(handler, event.type)):
                continue
            taken.append(self._call(handler.function, handler.arguments(event), event))
        for receiver in signals.BY_EVENT[event.type].receivers_for(client):
            taken += [self._call(receiver, (client, event), event)]
        return all(taken)

    def run_queued(self, deadline: Deadline) -> int:
        """Deliver on this thread what is queued, after waiting for a first event; returns how many events that were.

        Raises:
            RTVIError: the events of this client are delivered by threads.
            WouldDeadlockError: called inside a handler.
            ForkedProcessError: the session is the parent's.
        """
        self.check_process()
        if not self.lane.manual:
            raise RTVIError(
                "Handlers of this client run on a thread; make it with events='manual' to run them yourself"
            )
        if self.lane.is_current:
            raise WouldDeadlockError("process_events() was called inside a handler that it runs")
        self._tally.count = 0
        self.lane.run_queued(deadline)
        return int(self._tally.count)

    def _take(self, handler: _Handler, type_: RTVIEvent) -> bool:
        """Remove `handler`; False if that was done before."""
        try:
            self._handlers[type_].remove(handler)
        except ValueError:
            return False
        return True

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], event: Event) -> bool:
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
                now = time.monotonic()
                return self._hand_out(Event(type=RTVIEvent.HANDLER_ERROR, data=failure, received_at=now), 0)
        return True

    # -- fork ---------------------------------------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        self.lane.after_fork_in_child()
        self.busy_thread = None

    def lose_session(self) -> None:
        """In a forked child, on its only thread: the session is the parent's."""
        self._forked = True


def _event_of(type_: str) -> RTVIEvent:
    """The event of a message, by its wire type."""
    spec = INBOUND.get(type_)
    return spec.event if spec is not None and spec.event is not None else RTVIEvent.UNKNOWN_MESSAGE


def takes_payload(function: Callable[..., Any]) -> bool:
    """False if a handler is to be called without the payload.

    Raises:
        TypeError: it can be called neither with it nor without, or is a coroutine function.
    """
    if not callable(function):
        raise TypeError(f"A handler is a function, not {function!r}")
    signals.refuse_coroutine_function(function)
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
