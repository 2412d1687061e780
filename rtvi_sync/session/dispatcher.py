"""From an event to the program: handlers, signals and streams, in order, one event at a time per client."""

from __future__ import annotations

import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

import attrs

from .. import signals
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.serial_queue import SerialQueue
from ..errors import ForkedProcessError, RTVIError, WouldDeadlockError
from ..events import Event, RTVIEvent, event_from, event_of
from ..messages import RTVIMessage
from ..protocol import envelope
from ..protocol.dialects import INBOUND
from ..protocol.states import CloseInfo
from ..protocol.validation import FUNCTION
from .event_stream import EventStream

logger: logging.Logger = logging.getLogger(__name__)

# What comes once in a session, before `connect()` returns.
_ONCE = frozenset({RTVIEvent.CONNECTED, RTVIEvent.BOT_STARTED, RTVIEvent.BOT_CONNECTED, RTVIEvent.BOT_READY})
# What comes first in a session: it may be waited for before there is one.
_OPENING = _ONCE | {RTVIEvent.TRANSPORT_STATE_CHANGED, RTVIEvent.RECONNECTING, RTVIEvent.RECONNECT_FAILED}


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


Cause: TypeAlias = str | bytes | RTVIMessage
"""A message of the bot, or its text: that is parsed again if somebody wants the message, rather than kept parsed for
all the time that its event is queued."""


def message_of(cause: Cause) -> RTVIMessage:
    """The message that caused an event."""
    return cause if isinstance(cause, RTVIMessage) else envelope.decode(cause)


@attrs.define(eq=False)
class _Special:
    """A handler that does not simply take each payload."""

    function: Callable[..., Any]
    takes_payload: bool
    once: bool
    messages: frozenset[str] | None = None  # wire types: it takes the messages of these instead

    def call(self, data: Any, cause: Cause | None) -> None:
        """Hand it what it takes."""
        if self.takes_payload:
            self.function(data)
        elif self.messages is None:
            self.function()
        elif cause is not None and (message := message_of(cause)).type in self.messages:
            self.function(message)


# Most handlers stand for themselves. Who listens to all events has seventy in each session, a third of its memory.
_Handler: TypeAlias = Callable[..., Any] | _Special
_NONE: list[_Handler] = []


def _function_of(handler: _Handler) -> Callable[..., Any]:
    return handler.function if isinstance(handler, _Special) else handler


class Dispatcher:
    """Who listens to the events of one client. Owned by the client; sessions and queues refer to it weakly.

    Args:
        client: the sender that signals name. Held weakly.
        manual: events are delivered by `process_events()` only.
        max_events, max_bytes: limits of the queue, and of each stream's.
    """

    def __init__(self, client: object, *, manual: bool, max_events: int, max_bytes: int) -> None:
        self._client = weakref.ref(client)
        self.queue: SerialQueue = SerialQueue(max_items=max_events, max_bytes=max_bytes, manual=manual)
        self._limits = (max_events, max_bytes)
        # There is no lock, which a thread of the program's could hold while a signal handler on it waits for an event:
        # the lists and the dicts are changed in single steps, and walked in copies.
        self._handlers: dict[RTVIEvent, list[_Handler]] = {}
        self._streams: dict[int, weakref.ref[EventStream]] = {}  # by identity
        #: The program's functions that a bot may call, by name; under None, the one for all other names.
        self.functions: dict[str | None, Callable[..., Any]] = {}
        # Sessions are numbered from 1; they begin one at a time.
        self._begun = 0
        # The last session whose last events were, or are being, delivered, and how it ended. Written on the queue.
        self._over = (0, CloseInfo())
        self._tally = threading.local()  # of the events that process_events() has delivered on this thread
        self._forked = False
        register_for_fork(self)

    # -- registration: any thread -------------------------------------------------------------------------------------

    def add(
        self, event: str | RTVIEvent, function: Callable[..., Any], *, once: bool = False, name: str = "handler"
    ) -> None:
        """Call `function`, the value of the option `name`, for each `event`, or for the next one only."""
        type_, payload = event_from(event), takes_payload(function, name)
        self._add(type_, function if payload and not once else _Special(function, payload, once))

    def _add(self, type_: RTVIEvent, handler: _Handler) -> None:
        alone = [handler]
        if (handlers := self._handlers.setdefault(type_, alone)) is not alone:
            handlers.append(handler)

    def remove(self, event: str | RTVIEvent, function: Callable[..., Any] | None = None) -> None:
        """Call `function`, or nothing at all, for `event` any longer. An unknown function is no error."""
        type_ = event_from(event)
        for handler in self._handlers_of(type_):
            of_helper = isinstance(handler, _Special) and handler.messages is not None
            if not of_helper and (function is None or _function_of(handler) == function):
                self._take(handler, type_)

    def add_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Call `function` with each message of the bot that is of these wire types, in the order of the events."""
        for type_ in set(map(_event_of, messages)):
            self._add(type_, _Special(function, takes_payload=False, once=False, messages=messages))

    def remove_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Take back what `add_helper()` did."""
        for type_ in set(map(_event_of, messages)):
            for handler in self._handlers_of(type_):
                if isinstance(handler, _Special) and handler.messages is not None and handler.function == function:
                    self._take(handler, type_)

    def open_stream(self, types: Iterable[str | RTVIEvent], timeout: float | None) -> EventStream:
        """A stream of the events of `types` (none: of all) from now on.

        Raises:
            ForkedProcessError: the session is the parent's.
        """
        self.check_process()
        stream = EventStream(self, frozenset(event_from(type_, "events") for type_ in types), timeout, *self._limits)
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

    def has_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_`. What nobody listens to is neither decoded nor queued."""
        if self._handlers.get(type_):
            return True
        if self._streams and any(s.has_listener(type_) for s in self._live_streams()):
            return True
        return signals.BY_EVENT[type_].has_receivers_for(self._client())

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_` by its name. Who takes every event that there is may mean no particular
        one, and what costs something to find out is not found out for him.
        """
        return bool(
            self._handlers.get(type_)
            or any(type_ in s.types for s in self._live_streams())
            or signals.BY_EVENT[type_].has_receivers_for(self._client())
        )

    def _live_streams(self) -> list[EventStream]:
        return [stream for ref in self._streams.copy().values() if (stream := ref()) is not None]

    def _handlers_of(self, type_: RTVIEvent) -> list[_Handler]:
        return [*self._handlers.get(type_, _NONE)]

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

    # -- delivery: on the client's queue -------------------------------------------------------------------------------

    def deliver(
        self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None = None, size: int = 0
    ) -> bool:
        """Hand an event to everybody who listens; False if it was too much for a stream.

        The `Event` itself is made for streams and signals only. Most programs have handlers, which get the payload.
        """
        event: Event | None = None
        taken = True
        # Streams come first: what they promise is that the handlers of *earlier* events have returned, and those of
        # this one may take their time.
        if self._streams:
            event = _event(type_, data, received_at, cause)
            streams = [stream for stream in self._live_streams() if stream.has_listener(type_)]
            if type_ in _ONCE:  # a stream that was opened after connect() returned waits for the next session
                streams = [stream for stream in streams if not stream.is_stale(event)]
            pushed = [stream.push(event, size) for stream in streams]
            taken = all(pushed)
        client = self._client()
        if client is None:
            return taken
        for handler in [*self._handlers.get(type_, _NONE)]:
            try:
                if not isinstance(handler, _Special):
                    handler(data)
                elif not handler.once or self._take(handler, type_):
                    handler.call(data, cause)
            except BaseException as error:  # noqa: BLE001 - whatever user code raises
                event = event or _event(type_, data, received_at, cause)
                taken = self._failed(_function_of(handler), error, event) and taken
        signal = signals.BY_EVENT[type_]
        if signal.receivers:
            taken = self._send(signal, client, event or _event(type_, data, received_at, cause)) and taken
        return taken

    def _send(self, signal: signals.EventSignal, client: object, event: Event) -> bool:
        taken = True
        for receiver in signal.live_receivers(client):
            try:
                receiver(client, event)
            except BaseException as error:  # noqa: BLE001 - as above
                taken = self._failed(receiver, error, event) and taken
        return taken

    def count(self) -> None:
        """`process_events()` is about to deliver an event on this thread."""
        self._tally.count = getattr(self._tally, "count", 0) + 1

    def run_queued(self, deadline: Deadline) -> int:
        """Deliver on this thread what is queued, after waiting for a first event; returns how many events that were.

        Raises:
            RTVIError: the events of this client are delivered by threads.
            WouldDeadlockError: called inside a handler.
            ForkedProcessError: the session is the parent's.
        """
        self.check_process()
        if not self.queue.manual:
            raise RTVIError(
                "Handlers of this client run on a thread; make it with events='manual' to run them yourself"
            )
        if self.queue.is_current:
            raise WouldDeadlockError("process_events() was called inside a handler that it runs")
        self._tally.count = 0
        self.queue.run_queued(deadline)
        return int(self._tally.count)

    def _take(self, handler: _Handler, type_: RTVIEvent) -> bool:
        """Remove `handler`; False if that was done before."""
        try:
            self._handlers[type_].remove(handler)
        except ValueError:
            return False
        return True

    def _failed(self, handler: Callable[..., Any], error: BaseException, event: Event) -> bool:
        """A handler raised: it must not end the thread that serves other clients. Inside the `except`."""
        # On a thread of the user's own, in manual mode, an exit or Ctrl-C is his.
        if self.queue.manual and not isinstance(error, Exception):
            raise error
        logger.error("A handler of %r raised", event.type.value, exc_info=error)
        if event.type is RTVIEvent.HANDLER_ERROR:
            return True
        failure = HandlerError(error=error, event=event, handler=handler)
        return self.deliver(RTVIEvent.HANDLER_ERROR, failure, time.monotonic())

    # -- fork ---------------------------------------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        self.queue.after_fork_in_child()

    def lose_session(self) -> None:
        """In a forked child, on its only thread: the session is the parent's."""
        self._forked = True


def _event(type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None) -> Event:
    return event_of(type_, data, received_at, partial(message_of, cause) if cause is not None else None)


def _event_of(type_: str) -> RTVIEvent:
    """The event of a message, by its wire type."""
    spec = INBOUND.get(type_)
    return spec.event if spec is not None and spec.event is not None else RTVIEvent.UNKNOWN_MESSAGE


def takes_payload(function: Callable[..., Any], name: str = "handler") -> bool:
    """False if a handler, the value of the option `name`, is to be called without the payload.

    Raises:
        TypeError: it can be called neither with it nor without, or is a coroutine function.
    """
    FUNCTION.check_one(name, function)
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
    raise TypeError(f"{name} must take the payload or nothing; {function!r} needs more arguments")
