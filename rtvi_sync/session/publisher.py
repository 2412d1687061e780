"""Publication of a session's states and events, in one order."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from ..concurrency.clock import monotonic
from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.logs import package_logger
from ..concurrency.serial_queue import Item, QueueOverflow, SerialQueue
from ..concurrency.worker_pool import WorkerPool
from ..errors import DisconnectedError, ProtocolError
from ..events import RTVIEvent
from ..protocol import engine as protocol
from ..protocol.states import CloseInfo, TransportState, can_transition
from ..protocol.text import quoted
from .dispatcher import Cause, Dispatcher
from .first_messages import ConversationPort

logger: logging.Logger = package_logger(__name__)

# A faulty bot repeats its fault in every message: it is logged this often, and at DEBUG from then on.
_MAX_WARNINGS = 20

_LAST_STATES = (TransportState.DISCONNECTING, TransportState.DISCONNECTED, TransportState.ERROR)


class ClientState:
    """The state of a client. The queue's lock guards it, so that the order of states is the order of their events."""

    def __init__(self, queue: SerialQueue) -> None:
        self.queue = queue
        self.value: TransportState = TransportState.DISCONNECTED
        self.owner: object = None  # only the publisher that began last may change the state


class _Measured:
    """The last value of what is measured repeatedly."""

    def __init__(self) -> None:
        self.values: deque[tuple[Any, float]] = deque(maxlen=1)  # each with the time of its measurement
        self.queued = False  # an item on the queue will deliver it


class EventPublisher:
    """Changes the client's state and queues its events for one session, or for one call of `start_bot()`.

    It refers to the dispatcher weakly, so that a client which is dropped while connected can be collected.

    Args:
        dispatcher, states: The client's.
        workers: The threads that deliver events.
        session: The session's number; 0 without a session.
        on_overflow: Called when an event finds the queue full.
        takes_states: From now on only this publisher changes the state. False: it only queues events.
        in_connect: The session is an attempt of a call of `connect()`, which may make another one if it fails, and ends
            the streams of events if it makes none.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        states: ClientState,
        workers: WorkerPool,
        *,
        session: int = 0,
        on_overflow: Callable[[], object] = lambda: None,
        takes_states: bool = True,
        in_connect: bool = False,
    ) -> None:
        self._dispatcher = weakref.ref(dispatcher)
        self._states = states
        self._queue = states.queue
        self._workers = workers
        self._session = session
        self.in_connect: bool = in_connect  # else the session replaces a lost one
        self._on_overflow = on_overflow
        # These two are set by any thread, in one step, and never reset.
        self._ending = False  # no further step of an attempt is published
        self._silenced = False  # what is still queued is dropped
        self._delivered_last = False  # written by the queue's worker
        self._measured: dict[RTVIEvent, _Measured] = {}
        # These three belong to the thread that delivers messages.
        self._collected: list[Item] = []
        self._collected_bytes = 0
        self._warnings = 0
        # These three are written under the queue's lock.
        self._over = False  # nothing more is published
        self.was_opened = False  # the session was published as connected, so its end is, too
        self.was_ready = False  # the state READY was entered
        if takes_states:
            states.owner = self

    @property
    def state(self) -> TransportState:
        """Return the client's state."""
        return self._states.value

    @property
    def in_handler(self) -> bool:
        """True if the calling thread delivers an event of this client."""
        return self._queue.is_current

    @property
    def manual(self) -> bool:
        """True if the application delivers the events, by `process_events()`."""
        return self._queue.manual

    @property
    def overtaken(self) -> bool:
        """True if another session has started."""
        return self._states.owner is not self

    @property
    def functions(self) -> Mapping[str | None, Callable[..., Any]]:
        """Return the application's functions that a bot may call, by name; under None, the one for all other names."""
        dispatcher = self._dispatcher()
        return dispatcher.functions if dispatcher is not None else {}

    @property
    def conversation(self) -> ConversationPort | None:
        """Return what follows the client's conversation; None: the application has not asked for it."""
        dispatcher = self._dispatcher()
        return dispatcher.conversation if dispatcher is not None else None

    def has_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener."""
        dispatcher = self._dispatcher()
        return dispatcher is not None and dispatcher.has_listener(type_)

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """Whether `type_` has a listener of its own; one of all events does not count."""
        dispatcher = self._dispatcher()
        return dispatcher is not None and dispatcher.has_explicit_listener(type_)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and publish it; return False if it cannot follow, or another session has begun."""
        states = self._states

        def enter() -> bool:
            if self._over or (self._ending and state not in _LAST_STATES):
                return False
            if states.owner is not self or not can_transition(states.value, state):
                return False
            states.value = state
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
            self.enqueue([self.item(type_, data, monotonic(), cause, size)], size)

    def item(self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None = None, size: int = 0) -> Item:
        """Return the queue item that delivers an event, for `enqueue()`."""
        return EventPublisher._deliver, self, type_, data, received_at, cause, size

    def enqueue(self, items: list[Item], size: int) -> None:
        """Queue events that have listeners and hold `size` bytes. An event after the session's last one is never
        delivered.
        """
        try:
            self._queue.post_all(items, self._workers, size)
        except QueueOverflow:
            self._on_overflow()

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """Queue an event like `event()`; it replaces the last one of its type if that was not delivered yet.

        For what is measured repeatedly. Called on one thread at a time for each type.
        """
        if not self.has_listener(type_):
            return
        measured = self._measured.setdefault(type_, _Measured())
        measured.values.append((data, monotonic()))
        # If the event is delivered between these lines, the second item finds nothing.
        if not measured.queued:
            measured.queued = True
            self._post(partial(self._deliver_latest, type_, measured), when=self._accepts_events, force=False)

    def call(self, function: Callable[[], None], size: int) -> bool:
        """Queue a call of `function`, which holds `size` bytes; return False if the last event has been queued."""
        return self._post(function, when=self._accepts_events, size=size, force=False)

    def count(self) -> None:
        """Count the call of a function of the application, for `process_events()`. On the thread that calls it."""
        if (dispatcher := self._dispatcher()) is not None:
            dispatcher.count()

    # -- the bot's messages: one thread at a time ---------------------------------------------------------------------

    def collect(self, effect: protocol.Deliver, cause: Cause, received_at: float, size: int) -> None:
        """Decode an event that has a listener; `flush()` queues it.

        Args:
            effect: of the engine.
            cause: the message from which the engine made it.
            received_at: seconds of the monotonic clock.
            size: bytes that the message holds, for the limit of the queue.
        """
        event, dispatcher = effect.event, self._dispatcher()
        if dispatcher is None or not dispatcher.has_listener(event):
            return
        try:
            data = effect.decode()
        except ProtocolError as error:
            self._warn(f"The bot sent a message that breaks the protocol; it is delivered as unknown_message. {error}")
            event, data = RTVIEvent.UNKNOWN_MESSAGE, effect.message
            if not dispatcher.has_listener(event):
                return
        self._collected.append(self.item(event, data, received_at, cause, size))
        self._collected_bytes += size

    def flush(self) -> None:
        """Queue the collected events, before what must come after them."""
        if self._collected:
            events, size = self._collected, self._collected_bytes
            self._collected, self._collected_bytes = [], 0
            self.enqueue(events, size)

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

        # Without the queue's lock, because nothing may hold up the end. A step that is being published now comes first.
        self._ending = True

    def finish(self, info: CloseInfo, unsent: DisconnectedError | None) -> Latch:
        """Publish that the session has ended; nothing can follow.

        Args:
            info: how it has ended.
            unsent: names the messages that could not be sent.

        Returns:
            A latch that is set after the delivery of the last event.
        """

        def enter() -> bool:
            self._over = True
            return True

        # The state after a failed attempt to replace a session is that of the loss: the application did not call
        # `connect()`.
        failed = not (self.was_ready or info.by_application or info.reconnecting)
        at = monotonic()
        if self.conversation is not None:
            self._post(partial(self._end_turns, at, info), when=lambda: self.was_ready)
        if info.error is None and self.was_ready:
            # Only here: nothing that decides on another session, or on whether this one was cut off, may see it.
            info = attrs.evolve(info, error=unsent)
        self._post(self._step(RTVIEvent.BOT_DISCONNECTED), when=lambda: self.was_opened)
        self.move(TransportState.ERROR if failed else TransportState.DISCONNECTED)
        delivered = Latch()
        self._post(partial(self._deliver_last, info, at, delivered), when=enter)
        return delivered

    def silence(self) -> None:
        """Drop what is still queued."""
        self._silenced = True

    def deliver_queued(self, delivered: Latch, timeout: float) -> None:
        """Deliver events on this thread, after a wait of up to `timeout` seconds for the right to do so."""
        self._queue.run_queued(Deadline(timeout), until=delivered.is_set)

    def busy_threads(self) -> list[threading.Thread]:
        """Return the thread that is in a handler of this client now, if there is one."""
        running = self._queue.runs_on
        return [] if running is None else [thread for thread in threading.enumerate() if thread.ident == running]

    # -- internal -----------------------------------------------------------------------------------------------------

    def _accepts_events(self) -> bool:
        """Whether the last event is not queued yet."""
        return not self._over

    def _step(self, type_: RTVIEvent, data: Any = None) -> Callable[[], None] | None:
        """Return what delivers an event of the session's life cycle; None if it has no listener."""
        return partial(self._deliver, self.item(type_, data, monotonic())) if self.has_listener(type_) else None

    def _post(
        self, item: Callable[[], None] | None, *, when: Callable[[], bool], size: int = 0, force: bool = True
    ) -> bool:
        """Queue `item` if `when()`, called under the queue's lock, is true. Return False if it is not, or there is no
        room.

        The events of the session's life cycle are few, and applications rely on them: they are queued (`force`) even if
        there is no room.
        """
        try:
            return self._queue.post_if(when, item, self._workers, size, force=force)
        except QueueOverflow:
            self._on_overflow()
            return False

    @staticmethod
    def _deliver(item: Item) -> None:
        """Deliver an event. On the queue's worker."""
        self: EventPublisher
        _, self, type_, data, received_at, cause, size = item
        dispatcher = self._dispatcher()
        if dispatcher is None or self._silenced or self._delivered_last:
            return
        if self._queue.manual and dispatcher.is_heard(type_):
            dispatcher.count()
        if not dispatcher.deliver(type_, data, received_at, cause, size):
            self._on_overflow()

    def deliver(self, type_: RTVIEvent, data: Any, size: int) -> None:
        """Deliver an event that comes of those before it, and holds `size` bytes. On the queue's worker."""
        self._deliver(self.item(type_, data, monotonic(), size=size))

    def _deliver_latest(self, type_: RTVIEvent, measured: _Measured) -> None:
        """Deliver the last measured value. On the queue's worker."""
        measured.queued = False  # first, because a value that is appended from now on needs an item of its own
        try:
            data, received_at = measured.values.pop()
        except IndexError:
            return
        self._deliver(self.item(type_, data, received_at))

    def _end_turns(self, at: float, info: CloseInfo) -> None:
        """End the turns of the session. On the queue's worker."""
        conversation = self.conversation
        if conversation is not None:
            conversation.session_over(self._session, at, info)

    def _deliver_last(self, info: CloseInfo, received_at: float, delivered: Latch) -> None:
        """Deliver the last event of the session. On the queue's worker."""
        dispatcher = self._dispatcher()
        is_failed_attempt = self.in_connect and not self.was_ready
        try:
            if dispatcher is not None:
                dispatcher.session_over(self._session, None if is_failed_attempt else info)
                if self.was_opened and dispatcher.has_listener(RTVIEvent.DISCONNECTED):
                    self._deliver(self.item(RTVIEvent.DISCONNECTED, info, received_at))
        finally:
            self._delivered_last = True
            if dispatcher is not None and not is_failed_attempt:
                dispatcher.end_streams(self._session, info)
            delivered.set()
            self._queue.wake()
