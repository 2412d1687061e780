"""The event bus of a client: one serial queue passes published events to streams, handlers and receivers."""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

import attrs

from .. import signals
from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.lifecycle import register_for_fork
from ..concurrency.logs import package_logger
from ..concurrency.serial_queue import Item, QueueOverflow, SerialQueue
from ..concurrency.worker_pool import WorkerPool
from ..errors import DisconnectedError, ProtocolError, RTVIError, WouldDeadlockError
from ..events import Event, RTVIEvent, event_from, event_of
from ..messages import RTVIMessage
from ..protocol import engine as protocol
from ..protocol import envelope
from ..protocol.dialects import INBOUND, load_payload
from ..protocol.record import Record
from ..protocol.states import CloseInfo, TransportState, can_transition
from ..protocol.text import quoted
from ..protocol.validation import FUNCTION, name_of, takes
from .event_stream import EventStream, EventStreams

logger: logging.Logger = package_logger(__name__)

Cause: TypeAlias = str | bytes | RTVIMessage
"""A bot message, or its text. The text takes less memory while the event is queued; it is parsed again if a handler
reads the message."""

# A faulty bot repeats its fault in every message. It is logged this often, and at DEBUG from then on.
_MAX_WARNINGS = 20
_LAST_STATES = (TransportState.DISCONNECTING, TransportState.DISCONNECTED, TransportState.ERROR)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class HandlerError(Record):
    """The payload of `handler_error`: a handler raised.

    Attributes:
        error: The exception.
        event: The event that it was handling.
        handler: The function.
    """

    error: BaseException
    event: Event
    handler: Callable[..., Any]


class ClientState:
    """The state of a client. The queue's lock guards it, so that the order of states is the order of their events."""

    def __init__(self) -> None:
        self.value: TransportState = TransportState.DISCONNECTED
        self.owner: object = None  # only the publisher that started last may change the state


_NONE: list[Handler] = []


class EventBus:
    """The events of one client, in order, one at a time. Owned by the client; publishers refer to it weakly.

    Args:
        client: The sender of its signals. Held weakly.
        manual: Only `process_events()` delivers events.
        max_events, max_bytes: Limits of the queue, and of the queue of each stream.
    """

    # Mutable state: the handlers, observers and functions. There is no lock, because an application thread could hold
    # it while a signal handler on that thread waits for an event. The lists and dicts are changed in single steps, and
    # copied before they are iterated over.

    def __init__(self, client: object, *, manual: bool, max_events: int, max_bytes: int) -> None:
        self._client = weakref.ref(client)
        self.queue: SerialQueue = SerialQueue(max_items=max_events, max_bytes=max_bytes, manual=manual)
        self.state: ClientState = ClientState()
        self.streams: EventStreams = EventStreams(self.queue, max_events, max_bytes)
        self._handlers: dict[RTVIEvent, list[Handler]] = {}
        self._observers: dict[RTVIEvent, list[Callable[[Event], object]]] = {}
        #: The application's functions that a bot may call, by name; under None, the one for all other names.
        self.functions: dict[str | None, Callable[..., Any]] = {}
        self._tally = threading.local()  # counts the events that process_events() has delivered on this thread
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
        """Stop calling `function`, or any function, for `event`. An unknown function is not an error."""
        type_ = event_from(event)
        for handler in [*self._handlers.get(type_, _NONE)]:
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
            for handler in [*self._handlers.get(type_, _NONE)]:
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

    def open_stream(self, types: Iterable[str | RTVIEvent], timeout: float | None) -> EventStream:
        """Return a stream for the application; see `EventStreams.add()`. If the client is dropped before the stream is
        closed, the stream still gets its last events.
        """
        stream = self.streams.add(types, timeout)
        stream.keeps = self
        return stream

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener. Without one, the event is not decoded or queued."""
        if self._handlers.get(type_) or self._observers.get(type_):  # every event of every client passes here
            return True
        return self.is_heard(type_)

    def is_heard(self, type_: RTVIEvent) -> bool:
        """Whether the application listens to `type_`. The package itself listens by observers only."""
        if self._handlers.get(type_):
            return True
        streams, signal = self.streams, signals.BY_EVENT[type_]
        if streams.open and any(stream.has_listener(type_) for stream in streams.live()):
            return True
        return bool(signal.receivers) and signal.has_receivers_for(self._client())

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a handler, receiver or stream of its own. A stream of all events does not count: costly
        data is not produced for it.
        """
        return bool(
            self._handlers.get(type_)
            or self._observers.get(type_)
            or (self.streams.open and any(type_ in stream.types for stream in self.streams.live()))
            or signals.BY_EVENT[type_].has_receivers_for(self._client())
        )

    # -- delivery: on the client's queue -------------------------------------------------------------------------------

    def deliver(
        self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None = None, size: int = 0
    ) -> bool:
        """Pass an event to its streams, handlers, receivers and observers. Return False if the queue of a stream is
        full.

        Handlers get only the payload, and most applications have only handlers. So the `Event` object is made only for
        the others.
        """
        event: Event | None = None
        taken = True
        try:
            # Streams are first: they promise that the handlers of *earlier* events have returned, and the handlers of
            # this event may block.
            if self.streams.open:
                event = _event(type_, data, received_at, cause)
                taken = self.streams.push(event, size)
            client = self._client()
            if client is None:
                return taken
            for handler in [*self._handlers.get(type_, _NONE)]:
                try:
                    if not isinstance(handler, SpecialHandler):
                        handler(data)
                    elif not handler.once or self._discard(handler, type_):
                        handler.call(data, cause)
                except BaseException as error:  # noqa: BLE001 - user code may raise anything
                    event = event or _event(type_, data, received_at, cause)
                    taken = self._failed(function_of(handler), error, event) and taken
            signal = signals.BY_EVENT[type_]
            if signal.receivers:
                event = event or _event(type_, data, received_at, cause)
                taken = self._send(signal, client, event) and taken
            return taken
        finally:  # also if Ctrl-C interrupts a handler that the application runs itself
            if observers := self._observers.get(type_):
                event = event or _event(type_, data, received_at, cause)
                for observer in [*observers]:
                    observer(event)

    def _send(self, signal: signals.EventSignal, client: object, event: Event) -> bool:
        taken = True
        for receiver in signal.live_receivers(client):
            try:
                receiver(client, event)
            except BaseException as error:  # noqa: BLE001 - user code may raise anything
                taken = self._failed(receiver, error, event) and taken
        return taken

    def _discard(self, handler: Handler, type_: RTVIEvent) -> bool:
        """Remove `handler`. Return False if it was removed before."""
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

    # -- manual mode ---------------------------------------------------------------------------------------------------

    def count(self) -> None:
        """Count an event, or a function call of the bot, that `process_events()` has passed to the application."""
        self._tally.count = getattr(self._tally, "count", 0) + 1

    def run_queued(self, deadline: Deadline) -> int:
        """Wait for a first event, deliver all queued events on this thread, and return their number.

        The package's own queue items, for turns for example, don't count and don't end the wait. The end of a session
        ends it.

        Raises:
            RTVIError: Threads deliver the events of this client.
            WouldDeadlockError: Called in a handler.
            ForkedProcessError: The session is the parent's.
        """
        self.streams.check_process()
        if not self.queue.manual:
            raise RTVIError(
                "Handlers of this client run on a thread; make it with events='manual' to run them yourself"
            )
        if self.queue.is_current:
            raise WouldDeadlockError("process_events() was called inside a handler that it runs")
        self._tally.count, over = 0, self.streams.last_over
        while True:
            self.queue.run_queued(deadline)
            if self._tally.count or deadline.expired or self.streams.last_over is not over:
                return int(self._tally.count)

    def after_fork_in_child(self) -> None:
        """Empty the queue, whose events are the parent's."""
        self.queue.after_fork_in_child()


class _Measured:
    """The last value of a repeated measurement."""

    def __init__(self) -> None:
        self.values: deque[tuple[Any, float]] = deque(maxlen=1)  # each with the time of its measurement
        self.queued = False  # an item on the queue will deliver it


class EventPublisher:
    """Publishes the states and events of one session, or of one request without a session, on the client's bus.

    It refers to the bus weakly, so that a client which is dropped while connected can be collected.

    Args:
        bus: The client's.
        workers: The threads that deliver events.
        on_overflow: Called when an event finds the queue full.
        takes_states: From now on only this publisher changes the state. False: it only queues events.
    """

    # Mutable state. `_over`, `was_opened` and `was_ready` are written under the queue's lock; `_ending` and `_silenced`
    # by any thread, in one step, and never reset.

    def __init__(
        self,
        bus: EventBus,
        workers: WorkerPool,
        *,
        on_overflow: Callable[[], object] = lambda: None,
        takes_states: bool = True,
    ) -> None:
        self._bus = weakref.ref(bus)
        self.queue: SerialQueue = bus.queue
        self._state = bus.state
        self._workers = workers
        self._on_overflow = on_overflow
        self._ending = False  # no further step of an attempt is published
        self._over = False  # nothing more is published
        self._silenced = False  # queued events are dropped
        self._measured: dict[RTVIEvent, _Measured] = {}
        self._warnings = 0  # on the thread that delivers messages
        self.was_opened = False  # the session was published as connected, so its end is, too
        self.was_ready = False  # the state READY was entered
        if takes_states:
            bus.state.owner = self

    @property
    def bus(self) -> EventBus | None:
        """The client's bus; None if the client was collected."""
        return self._bus()

    @property
    def state(self) -> TransportState:
        """The client's state."""
        return self._state.value

    @property
    def overtaken(self) -> bool:
        """True if another session has started."""
        return self._state.owner is not self

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener."""
        bus = self._bus()
        return bus is not None and bus.has_listener(type_)

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener of its own. A listener to all events does not count."""
        bus = self._bus()
        return bus is not None and bus.has_explicit_listener(type_)

    # -- states and events: any thread --------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and publish it. Return False if it cannot follow, or another session has started."""
        current = self._state

        def enter() -> bool:
            if self._over or (self._ending and state not in _LAST_STATES):
                return False
            if current.owner is not self or not can_transition(current.value, state):
                return False
            current.value = state
            self.was_ready = self.was_ready or state is TransportState.READY
            return True

        return self._post(self._step(RTVIEvent.TRANSPORT_STATE_CHANGED, state), when=enter)

    def opened(self) -> bool:
        """Publish that the transport is open, unless the session is ending already."""

        def enter() -> bool:
            self.was_opened = not self._ending
            return self.was_opened

        if not self.move(TransportState.CONNECTED) or not self._post(self._step(RTVIEvent.CONNECTED), when=enter):
            return False
        return self._post(self._step(RTVIEvent.BOT_CONNECTED), when=lambda: not self._ending)

    def event(self, type_: RTVIEvent, data: Any = None, cause: Cause | None = None, size: int = 0) -> None:
        """Queue an event, if it has a listener."""
        if self.has_listener(type_):
            self.enqueue([(EventPublisher._deliver, self, type_, data, monotonic(), cause, size)], size)

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Queue an event like `event()`. It replaces an undelivered event of the same type.

        For repeated measurements. Called on one thread at a time for each type.
        """
        if not self.has_listener(type_):
            return
        measured = self._measured.setdefault(type_, _Measured())
        measured.values.append((data, monotonic()))
        # If the event is delivered between these lines, the second item finds nothing.
        if not measured.queued:
            measured.queued = True
            self.call(partial(self._deliver_latest, type_, measured), 0)

    def call(self, function: Callable[[], object], size: int, *, force: bool = False) -> bool:
        """Queue a call of `function`, which holds `size` bytes; return False if the last event has been queued.

        Args:
            function: On the queue's worker.
            size: For the limit of the queue.
            force: Queue it even if the queue is full.
        """
        return self._post(function, when=lambda: not self._over, size=size, force=force)

    def await_delivery(self, deadline: Deadline) -> None:
        """Wait until the handlers of the events that are queued now have returned, but not after `deadline`."""
        queue, passed = self.queue, Latch()
        if (len(queue) or queue.runs_on is not None) and self.call(passed.set, 0, force=True):
            while queue.manual and not (passed.is_set() or deadline.expired):
                queue.run_queued(deadline, until=passed.is_set)
            passed.wait(deadline)

    # -- the bot's messages: one thread at a time ---------------------------------------------------------------------

    def item_of(self, effect: protocol.Deliver, cause: Cause, received_at: float, size: int) -> Item | None:
        """Decode an event, and return the queue item that delivers it, for `enqueue()`; None if it has no listener.

        Args:
            effect: The engine's.
            cause: The message from which the engine made it.
            received_at: Seconds of the monotonic clock.
            size: Bytes that the message holds, for the limit of the queue.
        """
        event, bus = effect.event, self._bus()
        if bus is None or not bus.has_listener(event):
            return None
        try:
            data = effect.decode()
        except ProtocolError as error:
            self._warn(f"The bot sent a message that breaks the protocol; it is delivered as unknown_message. {error}")
            event, data = RTVIEvent.UNKNOWN_MESSAGE, effect.message
            if not bus.has_listener(event):
                return None
        return EventPublisher._deliver, self, event, data, received_at, cause, size

    def enqueue(self, items: list[Item], size: int) -> None:
        """Queue events that have listeners and hold `size` bytes. An event after the session's last one is never
        delivered.
        """
        try:
            self.queue.post_all(items, self._workers, size)
        except QueueOverflow:
            self._on_overflow()

    def perform(self, effect: protocol.Effect) -> None:
        """Pass an answer to the call that waits for it, or log a warning. Other effects concern sessions only."""
        if isinstance(effect, protocol.Resolve):
            if effect.waiter is not None:
                effect.waiter.resolve(effect.message)
            else:
                logger.debug(
                    "No call waits for the answer with the id %s; it is an event only", quoted(effect.message.id)
                )
        elif isinstance(effect, protocol.Reject):
            if effect.waiter is not None:
                effect.waiter.reject(effect.error)
        elif isinstance(effect, protocol.Warn):
            self._warn(effect.text)

    def _warn(self, text: str) -> None:
        """Log a fault of the bot, as a warning up to `_MAX_WARNINGS` times."""
        self._warnings += 1
        logger.log(logging.WARNING if self._warnings <= _MAX_WARNINGS else logging.DEBUG, "%s", text)
        if self._warnings == _MAX_WARNINGS:
            logger.warning("Further faults of this bot are logged at DEBUG: there are too many in this session")

    # -- the end: any thread ------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Publish no further step of the attempt: the session is ending."""

        # Without the queue's lock, because nothing may delay the end. A step that is being published is first.
        self._ending = True

    def finish(
        self, session: int, info: CloseInfo, unsent: DisconnectedError | None, at: float, *, in_connect: bool = False
    ) -> Latch:
        """Publish that a session has ended; nothing can follow.

        Args:
            session: Its number.
            info: How it ended.
            unsent: Names the messages that could not be sent.
            at: Its moment, in seconds of the monotonic clock.
            in_connect: It was an attempt of a call of `connect()`, which may make another one if it failed, and ends
                the streams of events if it makes none.

        Returns:
            A latch that is set after the delivery of the last event.
        """
        is_failed_attempt = in_connect and not self.was_ready
        # After a failed attempt to replace a session, the state is the same as after the loss, because the application
        # did not call `connect()`.
        failed = is_failed_attempt and not (info.by_application or info.reconnecting)
        if info.error is None and self.was_ready:
            # Only here: code that decides on another session, or on whether this one was cut off, must not see it.
            info = attrs.evolve(info, error=unsent) if unsent is not None else info
        delivered = Latch()

        def enter() -> bool:
            self._over = True
            return True

        def deliver_last(*, to_nobody: bool = False) -> None:
            bus = self._bus()
            try:
                if bus is not None:
                    bus.streams.session_over(session, None if is_failed_attempt else info)
                    if self.was_opened and not to_nobody and bus.has_listener(RTVIEvent.DISCONNECTED):
                        self.deliver(RTVIEvent.DISCONNECTED, info, at)
            finally:
                self._silenced = True
                if bus is not None and not is_failed_attempt:
                    bus.streams.end_session(session, info)
                delivered.set()
                self.queue.wake()

        self._post(self._step(RTVIEvent.BOT_DISCONNECTED), when=lambda: self.was_opened)
        self.move(TransportState.ERROR if failed else TransportState.DISCONNECTED)
        self._post(None, when=enter)
        is_heard = self.was_opened and self.has_listener(RTVIEvent.DISCONNECTED)
        if is_heard or not self.queue.run_alone(partial(deliver_last, to_nobody=True), self._workers):
            self.queue.post(deliver_last, self._workers, force=True)
        return delivered

    def silence(self) -> None:
        """Drop the queued events."""
        self._silenced = True

    def busy_threads(self) -> list[threading.Thread]:
        """Return the thread that is running a handler of this client now, if any."""
        running = self.queue.runs_on
        return [] if running is None else [thread for thread in threading.enumerate() if thread.ident == running]

    # -- the queue's items --------------------------------------------------------------------------------------------

    def _step(self, type_: RTVIEvent, data: Any = None) -> Callable[[], None] | None:
        """Return the item that delivers an event of the session's life cycle. None if the event has no listener."""
        return partial(self.deliver, type_, data, monotonic()) if self.has_listener(type_) else None

    def _post(
        self, item: Callable[[], object] | None, *, when: Callable[[], bool], size: int = 0, force: bool = True
    ) -> bool:
        """Queue `item` if `when()`, called under the queue's lock, is true. Return False if it is not, or there is no
        room.

        The events of the session's life cycle are few, and applications rely on them: they are queued (`force`) even if
        there is no room.
        """
        try:
            return self.queue.post_if(when, item, self._workers, size, force=force)
        except QueueOverflow:
            self._on_overflow()
            return False

    @staticmethod
    def _deliver(item: Item) -> None:
        """Deliver an event. On the queue's worker."""
        self: EventPublisher
        _, self, type_, data, received_at, cause, size = item
        bus = self._bus()
        if bus is None or self._silenced:
            return
        if self.queue.manual and bus.is_heard(type_):
            bus.count()
        if not bus.deliver(type_, data, received_at, cause, size):
            self._on_overflow()

    def deliver(self, type_: RTVIEvent, data: Any, at: float, size: int = 0) -> None:
        """Deliver an event, which holds `size` bytes, now. On the queue's worker."""
        self._deliver((None, self, type_, data, at, None, size))

    def _deliver_latest(self, type_: RTVIEvent, measured: _Measured) -> None:
        """Deliver the last measured value. On the queue's worker."""
        measured.queued = False  # first, because a value that is appended from now on needs an item of its own
        try:
            data, received_at = measured.values.pop()
        except IndexError:
            return
        self.deliver(type_, data, received_at)


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
        TypeError: It can be called in neither way, or the call would not run its code.
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
