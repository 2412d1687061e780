"""Delivery of events to handlers, receivers and streams, in order, one event at a time for each client."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

import attrs

from .. import signals
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..concurrency.serial_queue import SerialQueue
from ..errors import BotNotReadyError, ForkedProcessError, RequestTimeoutError, RTVIError, WouldDeadlockError
from ..events import Event, RTVIEvent, event_from, event_of
from ..messages import RTVIMessage
from ..protocol import envelope
from ..protocol.dialects import INBOUND, load_payload
from ..protocol.states import CloseInfo
from ..protocol.validation import FUNCTION, name_of, takes
from .event_stream import EventStream
from .first_messages import ConversationPort

logger: logging.Logger = package_logger(__name__)

Cause: TypeAlias = str | bytes | RTVIMessage
"""A bot message, or its text. The text takes less memory while the event is queued; it is parsed again if a handler
reads the message."""


@attrs.frozen(kw_only=True)
class HandlerError:
    """The payload of `handler_error`: a handler raised.

    Attributes:
        error: The exception.
        event: The event it was handling.
        handler: The function.
    """

    error: BaseException
    event: Event
    handler: Callable[..., Any]


def forked_error() -> ForkedProcessError:
    """Return the error of a call that needs a session of the parent process."""
    return ForkedProcessError(
        "This client was connected when the process forked, so its session belongs to the parent. "
        "Make and connect a client in the child process: in a web worker, connect in the request or in a post-fork "
        "hook, not at import."
    )


_NONE: list[Handler] = []


class Dispatcher:
    """The handlers and streams of one client. Owned by the client; sessions and queues refer to it weakly.

    Args:
        client: The sender of its signals. Held weakly.
        manual: Only `process_events()` delivers events.
        max_events, max_bytes: Limits of the queue, and of the queue of each stream.
    """

    def __init__(self, client: object, *, manual: bool, max_events: int, max_bytes: int) -> None:
        self._client = weakref.ref(client)
        self.queue: SerialQueue = SerialQueue(max_items=max_events, max_bytes=max_bytes, manual=manual)
        self._limits = (max_events, max_bytes)
        # There is no lock, because an application thread could hold it while a signal handler on that thread waits for
        # an event: the lists and dicts are changed in single steps, and copied before they are iterated over.
        self._handlers: dict[RTVIEvent, list[Handler]] = {}
        self._observers: dict[RTVIEvent, list[Callable[[Event], object]]] = {}
        self._streams: dict[int, weakref.ref[EventStream]] = {}  # by identity
        #: The application's functions that a bot may call, by name; under None, the one for all other names.
        self.functions: dict[str | None, Callable[..., Any]] = {}
        #: Follows the conversation of the client's sessions; None: the application has not asked for it.
        self.conversation: ConversationPort | None = None
        # Sessions are numbered from 1; they start one at a time.
        self._begun = 0
        # The last session whose last events were delivered or are being delivered, and how it ended; None: it was an
        # attempt of a `connect()` that may make another one. Written by the queue's worker.
        self._over: tuple[int, CloseInfo | None] = (0, None)
        # The last session that no other followed, though one might have, and how it ended. Written by the thread that
        # makes no further attempt.
        self._given_up: tuple[int, CloseInfo | None] = (0, None)
        self._closed = False  # the client is closed: no further session starts
        self._tally = threading.local()  # counts the events that process_events() has delivered on this thread
        self._forked = False
        register_for_fork(self)

    # -- registration: any thread -------------------------------------------------------------------------------------

    def add(
        self, event: str | RTVIEvent, function: Callable[..., Any], *, once: bool = False, name: str = "handler"
    ) -> None:
        """Call `function`, the value of the option `name`, for each `event`, or for the next one only."""
        type_, payload = event_from(event), takes_payload(function, name)
        self._add(type_, function if payload and not once else SpecialHandler(function, payload, once))

    def _add(self, type_: RTVIEvent, handler: Handler) -> None:
        load_payload(type_)
        alone = [handler]
        if (handlers := self._handlers.setdefault(type_, alone)) is not alone:
            handlers.append(handler)

    def remove(self, event: str | RTVIEvent, function: Callable[..., Any] | None = None) -> None:
        """Stop calling `function`, or any function, for `event`. An unknown function is no error."""
        type_ = event_from(event)
        for handler in self._handlers_of(type_):
            of_helper = isinstance(handler, SpecialHandler) and handler.messages is not None
            if not of_helper and (function is None or function_of(handler) == function):
                self._discard(handler, type_)

    def add_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Call `function` with each of the bot's messages of these wire types, in the order of the events."""
        for type_ in set(map(_event_of, messages)):
            self._add(type_, SpecialHandler(function, takes_payload=False, once=False, messages=messages))

    def remove_helper(self, function: Callable[[RTVIMessage], object], messages: frozenset[str]) -> None:
        """Undo `add_helper()`."""
        for type_ in set(map(_event_of, messages)):
            for handler in self._handlers_of(type_):
                if isinstance(handler, SpecialHandler) and handler.messages and handler.function == function:
                    self._discard(handler, type_)

    def observe(self, types: Iterable[RTVIEvent], function: Callable[[Event], object]) -> Callable[[], None]:
        """Call `function` with each event of `types`, after its handlers. Return a function that undoes this."""
        observed = frozenset(types)
        for type_ in observed:
            load_payload(type_)
            self._observers.setdefault(type_, []).append(function)

        def stop() -> None:
            for type_ in observed:
                with contextlib.suppress(ValueError):  # it was called before
                    self._observers[type_].remove(function)

        return stop

    def open_stream(
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
        key, streams = id(stream), self._streams
        streams[key] = weakref.ref(stream, lambda _: streams.pop(key, None))
        while True:
            over, info = self._last_over
            # The stream ends with the live session, or with the next one.
            stream.session = max(self._begun, over + 1)
            stream.after = info if self._begun == over > 0 else None
            if self._last_over[0] == over:
                if self._closed and stream.session > self._begun:
                    stream.end(info or CloseInfo())
                return stream
            # A session ended between the two reads of `_last_over`, and its end may have missed the stream.

    def wait_for(self, event: str | RTVIEvent, where: Callable[[Event], object] | None, timeout: float | None) -> Event:
        """Wait for the next `event` for which `where(event)` is true. See `RTVIClient.wait_for()`."""
        type_ = event_from(event)
        deadline = Deadline(timeout)
        with self.open_stream([type_], timeout) as stream:
            if stream.after is not None and not type_.starts:
                raise stream.after.as_error(f"the {type_.value} event came")
            while True:
                found = stream.next_before(deadline)
                if found is None:
                    raise (stream.ended or CloseInfo()).as_error(f"the {type_.value} event came")
                if where is None or where(found):
                    return found

    def wait_for_end(self, timeout: float | None) -> CloseInfo:
        """Wait until the session and those that replace it have ended. See `RTVIClient.wait()`."""
        deadline = Deadline(timeout)
        with self.open_stream([RTVIEvent.DISCONNECTED], None, outlives_loss=True) as stream:
            if not self._begun:
                raise BotNotReadyError("There is no session whose end could be awaited: call connect() first")
            if stream.after is not None and not stream.after.reconnecting:
                return stream.after
            try:
                while stream.next_before(deadline) is not None:
                    pass  # of a session that is replaced
            except RequestTimeoutError:
                raise RequestTimeoutError(
                    f"The session has not ended within {timeout} s. Pass a larger timeout, or call disconnect()."
                ) from None
            return stream.ended or CloseInfo()

    def close_stream(self, stream: EventStream) -> None:
        """Push no more events to `stream`."""
        self._streams.pop(id(stream), None)

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener. An event without one is neither decoded nor queued."""
        # Without is_heard(), because every event of every client passes here.
        if self._handlers.get(type_) or self._observers.get(type_):
            return True
        if self._streams and any(s.has_listener(type_) for s in self._live_streams()):
            return True
        return signals.BY_EVENT[type_].has_receivers_for(self._client())

    def is_heard(self, type_: RTVIEvent) -> bool:
        """Whether the application listens to `type_`. The package itself listens by observers only."""
        if self._handlers.get(type_) or any(s.has_listener(type_) for s in self._live_streams()):
            return True
        return signals.BY_EVENT[type_].has_receivers_for(self._client())

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a handler, receiver or stream of its own. A stream of all events does not count:
        data that is costly to produce is not produced for it.
        """
        return bool(
            self._handlers.get(type_)
            or self._observers.get(type_)
            or (self._streams and any(type_ in s.types for s in self._live_streams()))
            or signals.BY_EVENT[type_].has_receivers_for(self._client())
        )

    def _live_streams(self) -> list[EventStream]:
        return [stream for ref in self._streams.copy().values() if (stream := ref()) is not None]

    def _handlers_of(self, type_: RTVIEvent) -> list[Handler]:
        return [*self._handlers.get(type_, _NONE)]

    # -- sessions -----------------------------------------------------------------------------------------------------

    @property
    def _last_over(self) -> tuple[int, CloseInfo | None]:
        return self._given_up if self._given_up[0] >= self._over[0] else self._over

    @property
    def awaits_replacement(self) -> bool:
        """True if the last session has ended and another one was to replace it."""
        number, info = self._last_over
        return number == self._begun and info is not None and info.reconnecting

    @property
    def sessions(self) -> int:
        """The number of sessions that have started."""
        return self._begun

    def begin_session(self) -> int:
        """Start a session; return its number."""
        self._begun += 1
        return self._begun

    def session_over(self, number: int, info: CloseInfo | None) -> None:
        """Record how a session ended (`info` as in `_over`), before its last event is delivered: streams opened
        from now on belong to the next session.
        """
        if number >= self._over[0]:
            self._over = number, info

    def end_streams(self, number: int, info: CloseInfo) -> None:
        """End the streams of a session whose last event was delivered."""
        for stream in self._live_streams():
            if stream.session > number:
                continue
            is_opening = bool(stream.types) and all(type_.starts for type_ in stream.types)
            if info.reconnecting and (is_opening or stream.outlives_loss):
                stream.session = number + 1  # a stream that waits for a session waits for the one that replaces it
            else:
                stream.end(info)
                self.close_stream(stream)

    def end_for_good(self, info: CloseInfo) -> None:
        """End the streams that wait for a further session, also those that are opened later: none will start."""
        self._closed = True
        over, last = self._over
        if over == self._begun and last is not None and last.reconnecting:
            self._over = over, info  # before the streams, so that one that is opened now is ended or knows
        for stream in self._live_streams():
            if stream.session > self._begun:
                stream.end(info)
                self.close_stream(stream)

    def give_up(self, info: CloseInfo, number: int | None = None) -> Callable[[], None]:
        """Return a queue item that closes all currently open streams: the session that they wait for will not start.

        Args:
            info: How the last session ended.
            number: The number of that session; None: the session that started last.
        """
        if number is not None and number < self._begun:
            return lambda: None  # the streams continue with the session that another thread has started
        info = attrs.evolve(info, reconnecting=False)
        # Before the streams, so that one that is opened now is ended or knows.
        self._given_up = self._begun if number is None else number, info
        streams = self._streams.copy()  # not those that the application opens before the item runs

        def end() -> None:
            for key, ref in streams.items():
                if key in self._streams and (stream := ref()) is not None:  # else it has ended or was closed since
                    stream.end(info)
                    self.close_stream(stream)

        return end

    def check_process(self) -> None:
        """Raise `ForkedProcessError` in a child that was forked while a session was live."""
        if self._forked:
            raise forked_error()

    # -- delivery: on the client's queue -------------------------------------------------------------------------------

    def deliver(
        self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None = None, size: int = 0
    ) -> bool:
        """Pass an event to its streams, handlers and receivers; return False if the queue of a stream is full.

        The `Event` object is made for streams and receivers only. Most applications have handlers, which get the
        payload.
        """
        try:
            return self._deliver(type_, data, received_at, cause, size)
        finally:  # also if Ctrl-C interrupts a handler that the application runs itself
            for observer in [*self._observers.get(type_, ())]:
                observer(_event(type_, data, received_at, cause))

    def _deliver(self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None, size: int) -> bool:
        event: Event | None = None
        taken = True
        # Streams are first: they promise that the handlers of *earlier* events have returned, and those of this event
        # may block.
        if self._streams:
            event = _event(type_, data, received_at, cause)
            streams = [stream for stream in self._live_streams() if stream.has_listener(type_)]
            if type_.starts == "once":  # a stream that was opened after connect() returned waits for the next session
                streams = [stream for stream in streams if not stream.is_stale(event)]
            pushed = [stream.push(event, size) for stream in streams]
            taken = all(pushed)
        client = self._client()
        if client is None:
            return taken
        for handler in [*self._handlers.get(type_, _NONE)]:
            try:
                if not isinstance(handler, SpecialHandler):
                    handler(data)
                elif not handler.once or self._discard(handler, type_):
                    handler.call(data, cause)
            except BaseException as error:  # noqa: BLE001 - whatever user code raises
                event = event or _event(type_, data, received_at, cause)
                taken = self._failed(function_of(handler), error, event) and taken
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
        """Count an event, or a call of a function, by which `process_events()` reaches the application."""
        self._tally.count = getattr(self._tally, "count", 0) + 1

    def run_queued(self, deadline: Deadline) -> int:
        """Wait for a first event, deliver all queued events on this thread, and return their number.

        Items that the package queues for itself, to follow turns for example, neither count nor end the wait. The end
        of a session ends it.

        Raises:
            RTVIError: Threads deliver the events of this client.
            WouldDeadlockError: Called inside a handler.
            ForkedProcessError: The session is the parent's.
        """
        self.check_process()
        if not self.queue.manual:
            raise RTVIError(
                "Handlers of this client run on a thread; make it with events='manual' to run them yourself"
            )
        if self.queue.is_current:
            raise WouldDeadlockError("process_events() was called inside a handler that it runs")
        self._tally.count, over = 0, self._last_over
        while True:
            self.queue.run_queued(deadline)
            if self._tally.count or deadline.expired or self._last_over is not over:
                return int(self._tally.count)

    def _discard(self, handler: Handler, type_: RTVIEvent) -> bool:
        """Remove `handler`; return False if it was removed before."""
        try:
            self._handlers[type_].remove(handler)
        except ValueError:
            return False
        return True

    def _failed(self, handler: Callable[..., Any], error: BaseException, event: Event) -> bool:
        """Log and publish that a handler raised, which must not end the thread that serves other clients. Inside the
        `except`.
        """
        # In manual mode handlers run on an application thread, where an exit or Ctrl-C has to get through.
        if self.queue.manual and not isinstance(error, Exception):
            raise error
        logger.error("A handler of %r raised", event.type.value, exc_info=error)
        if event.type is RTVIEvent.HANDLER_ERROR:
            return True
        failure = HandlerError(error=error, event=event, handler=handler)
        return self.deliver(RTVIEvent.HANDLER_ERROR, failure, monotonic())

    # -- fork ---------------------------------------------------------------------------------------------------------

    def after_fork_in_child(self) -> None:
        """Empty the queue, whose events are the parent's."""
        self.queue.after_fork_in_child()

    def lose_session(self) -> None:
        """Mark the session as the parent's. In a forked child, on its only thread."""
        self._forked = True


# -- handlers ---------------------------------------------------------------------------------------------------------


@attrs.define(eq=False, repr=False)
class SpecialHandler:
    """A handler that is not simply called with each payload.

    Attributes:
        function: The application's function, or a helper's.
        takes_payload: Whether it is called with the payload.
        once: Whether it is called for the next event only.
        messages: Wire types. The function is called with the messages of these types, not with payloads.
    """

    function: Callable[..., Any]
    takes_payload: bool
    once: bool
    messages: frozenset[str] | None = None

    def call(self, data: Any, cause: Cause | None) -> None:
        """Call the function with the arguments that it takes."""
        if self.takes_payload:
            self.function(data)
        elif self.messages is None:
            self.function()
        elif cause is not None and (message := message_of(cause)).type in self.messages:
            self.function(message)


# Most handlers are stored as plain functions. A client with handlers for all events has 70 of them, a third of its
# memory.
Handler: TypeAlias = Callable[..., Any] | SpecialHandler


def function_of(handler: Handler) -> Callable[..., Any]:
    """Return the application's function of a handler."""
    return handler.function if isinstance(handler, SpecialHandler) else handler


def takes_payload(function: Callable[..., Any], name: str = "handler") -> bool:
    """Whether to call a handler, the value of the option `name`, with the payload.

    Raises:
        TypeError: It can be called neither with nor without the payload, or the call would not run its code.
    """
    FUNCTION.check_one(name, function)
    for follow_wrapped in (True, False):
        for arguments in ((None,), ()):
            if takes(function, *arguments, follow_wrapped=follow_wrapped):
                return bool(arguments)
    raise TypeError(f"{name} must take the payload or nothing; {name_of(function)} needs more arguments")


def message_of(cause: Cause) -> RTVIMessage:
    """Return the message that caused an event."""
    return cause if isinstance(cause, RTVIMessage) else envelope.decode(cause)


def _event(type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None) -> Event:
    return event_of(type_, data, received_at, partial(message_of, cause) if cause is not None else None)


def _event_of(type_: str) -> RTVIEvent:
    """Return the event of a message, by its wire type."""
    spec = INBOUND.get(type_)
    return spec.event if spec is not None and spec.event is not None else RTVIEvent.UNKNOWN_MESSAGE
