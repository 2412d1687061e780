"""What becomes of a session, told in one order: the client's state, and its events."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..concurrency.deadline import Deadline
from ..concurrency.latch import Latch
from ..concurrency.serial_queue import Item, QueueOverflow, SerialQueue
from ..concurrency.worker_pool import WorkerPool
from ..events import RTVIEvent
from ..protocol.states import CloseInfo, TransportState, can_transition
from .dispatcher import Cause, Dispatcher

_LAST_STATES = (TransportState.DISCONNECTING, TransportState.DISCONNECTED, TransportState.ERROR)


class ClientState:
    """The state of a client. The queue's lock guards it, so that the order of states is the order of their events."""

    def __init__(self, queue: SerialQueue) -> None:
        self.queue = queue
        self.value: TransportState = TransportState.DISCONNECTED
        self.owner: object = None  # only what began last may change the state

    def enter(self, owner: object, state: TransportState) -> bool:
        """Under the queue's lock: enter `state` if `owner` may and it can follow."""
        if self.owner is not owner or not can_transition(self.value, state):
            return False
        self.value = state
        return True


class _Measured:
    """The last value of something that is measured again and again."""

    def __init__(self) -> None:
        self.values: deque[tuple[Any, float]] = deque(maxlen=1)  # and when they were measured
        self.queued = False  # something is on the queue that will deliver it


class EventPublisher:
    """Changes the client's state and queues its events for one session, or for one call of `start_bot()`.

    It refers to the dispatcher weakly, so that a client which is dropped while connected can be collected.

    Args:
        dispatcher: of the client.
        states: of the client.
        workers: the threads that deliver events.
        session: number of the session, 0 without one.
        on_overflow: called when an event finds the queue full.
        takes_states: from now on only this publisher changes the state. False: it only queues events.
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
    ) -> None:
        self._dispatcher = weakref.ref(dispatcher)
        self._states = states
        self._queue = states.queue
        self._workers = workers
        self._session = session
        self._on_overflow = on_overflow
        # These two are set by any thread, in one step, and stay so.
        self._ending = False  # no step of an attempt is announced any more
        self._silenced = False  # what is still queued is dropped
        self._said_last = False  # written on the queue
        self._measured: dict[RTVIEvent, _Measured] = {}
        # These three are written under the queue's lock.
        self._over = False  # nothing is announced any more
        self._said_connected = False
        self.was_ready = False  # the state READY was entered
        if takes_states:
            states.owner = self

    @property
    def state(self) -> TransportState:
        """The client's state."""
        return self._states.value

    @property
    def in_handler(self) -> bool:
        """True on the thread that delivers an event of this client right now."""
        return self._queue.is_current

    @property
    def manual(self) -> bool:
        """True if events are delivered when the program asks for it."""
        return self._queue.manual

    @property
    def overtaken(self) -> bool:
        """True if another session has begun."""
        return self._states.owner is not self

    @property
    def functions(self) -> Mapping[str | None, Callable[..., Any]]:
        """The program's functions that a bot may call, by name; under None, the one for all other names."""
        dispatcher = self._dispatcher()
        return dispatcher.functions if dispatcher is not None else {}

    def has_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_`."""
        dispatcher = self._dispatcher()
        return dispatcher is not None and dispatcher.has_listener(type_)

    def has_explicit_listener(self, type_: RTVIEvent) -> bool:
        """True if anybody listens to `type_` by its name."""
        dispatcher = self._dispatcher()
        return dispatcher is not None and dispatcher.has_explicit_listener(type_)

    # -- any thread ---------------------------------------------------------------------------------------------------

    def move(self, state: TransportState) -> bool:
        """Enter `state` and say so; False if it cannot follow, or another session has taken over."""

        def enter() -> bool:
            if self._over or (self._ending and state not in _LAST_STATES):
                return False
            if not self._states.enter(self, state):
                return False
            self.was_ready = self.was_ready or state is TransportState.READY
            return True

        return self._post(self._step(RTVIEvent.TRANSPORT_STATE_CHANGED, state), when=enter)

    def opened(self) -> bool:
        """The transport is open: say so, unless the session is ending already."""

        def enter() -> bool:
            self._said_connected = not self._ending
            return self._said_connected

        if not self.move(TransportState.CONNECTED) or not self._post(self._step(RTVIEvent.CONNECTED), when=enter):
            return False
        return self._post(self._step(RTVIEvent.BOT_CONNECTED), when=lambda: not self._ending)

    def event(self, type_: RTVIEvent, data: Any = None, cause: Cause | None = None, size: int = 0) -> None:
        """Queue an event, if anybody listens."""
        if self.has_listener(type_):
            self.enqueue([self.item(type_, data, time.monotonic(), cause, size)], size)

    def item(self, type_: RTVIEvent, data: Any, received_at: float, cause: Cause | None = None, size: int = 0) -> Item:
        """What delivers an event, for `enqueue()`."""
        return EventPublisher._deliver, self, type_, data, received_at, cause, size

    def enqueue(self, items: list[Item], size: int) -> None:
        """Queue events to which somebody listens, and so many bytes. What comes after the last is never delivered."""
        try:
            self._queue.post_all(items, self._workers, size)
        except QueueOverflow:
            self._on_overflow()

    def latest(self, type_: RTVIEvent, data: Any) -> None:
        """As `event()`, for what is measured again and again: what was not delivered yet is replaced.

        Called on one thread at a time for each type.
        """
        if not self.has_listener(type_):
            return
        measured = self._measured.setdefault(type_, _Measured())
        measured.values.append((data, time.monotonic()))
        # If the queue takes the event in this very moment, the second item finds nothing.
        if not measured.queued:
            measured.queued = True
            self._post(partial(self._deliver_latest, type_, measured), when=self._goes_on, force=False)

    def call(self, function: Callable[[], None], size: int) -> None:
        """Call `function`, which holds so many bytes, on the queue, unless the last event has been queued."""
        self._post(function, when=self._goes_on, size=size, force=False)

    def end(self) -> None:
        """The session is ending: from now on no further step of the attempt is announced."""

        # Without the queue's lock: nobody may hold the end up. A step that is being announced right now comes first.
        self._ending = True

    def finish(self, info: CloseInfo) -> Latch:
        """Say that the session has ended; nothing can follow. Returns what is set when all was delivered."""

        def enter() -> bool:
            self._over = True
            return True

        # An attempt to replace a session is not the program's `connect()`: its state afterwards is that of the loss.
        failed = not (self.was_ready or info.by_application or info.reconnecting)
        self._post(self._step(RTVIEvent.BOT_DISCONNECTED), when=lambda: self._said_connected)
        self.move(TransportState.ERROR if failed else TransportState.DISCONNECTED)
        delivered = Latch()
        self._post(partial(self._deliver_last, info, time.monotonic(), delivered), when=enter)
        return delivered

    def give_up(self, info: CloseInfo) -> None:
        """There will be no further session: whoever waits for one is told, after what is queued."""
        self._post(partial(self._end_waiting, info), when=lambda: True)

    def silence(self) -> None:
        """Drop what is still queued."""
        self._silenced = True

    def deliver_queued(self, delivered: Latch, timeout: float) -> None:
        """At exit there may be no thread to deliver events any more: do it on this one."""
        self._queue.run_queued(Deadline(timeout), until=delivered.is_set)

    def busy_threads(self) -> list[threading.Thread]:
        """The thread that is in a handler of this client now, if there is one."""
        running = self._queue.runs_on
        return [] if running is None else [thread for thread in threading.enumerate() if thread.ident == running]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        """True until the last event has been queued."""
        return not self._over

    def _step(self, type_: RTVIEvent, data: Any = None) -> Callable[[], None] | None:
        """What delivers an event of the session's own life; None if nobody listens."""
        return partial(self._deliver, self.item(type_, data, time.monotonic())) if self.has_listener(type_) else None

    def _post(
        self, item: Callable[[], None] | None, *, when: Callable[[], bool], size: int = 0, force: bool = True
    ) -> bool:
        """Queue `item` if `when()`, called under the queue's lock, is true. False if it is not, or there is no room.

        The steps of the session's own life are few, and the program relies on them: they are queued (`force`) though
        there is no room.
        """
        try:
            return self._queue.post_if(when, item, self._workers, size, force=force)
        except QueueOverflow:
            self._on_overflow()
            return False

    @staticmethod
    def _deliver(item: Item) -> None:
        """On the queue."""
        self: EventPublisher
        _, self, type_, data, received_at, cause, size = item
        dispatcher = self._dispatcher()
        if dispatcher is None or self._silenced or self._said_last:
            return
        if self._queue.manual:
            dispatcher.count()
        if not dispatcher.deliver(type_, data, received_at, cause, size):
            self._on_overflow()

    def _deliver_latest(self, type_: RTVIEvent, measured: _Measured) -> None:
        """On the queue."""
        measured.queued = False  # first: what is appended from now on is queued anew
        try:
            data, received_at = measured.values.pop()
        except IndexError:
            return
        self._deliver(self.item(type_, data, received_at))

    def _end_waiting(self, info: CloseInfo) -> None:
        """On the queue."""
        dispatcher = self._dispatcher()
        if dispatcher is not None:
            dispatcher.end_sessions(info)

    def _deliver_last(self, info: CloseInfo, received_at: float, delivered: Latch) -> None:
        """On the queue."""
        dispatcher = self._dispatcher()
        try:
            if dispatcher is not None:
                dispatcher.session_over(self._session, info)
                if self._said_connected and dispatcher.has_listener(RTVIEvent.DISCONNECTED):
                    self._deliver(self.item(RTVIEvent.DISCONNECTED, info, received_at))
        finally:
            self._said_last = True
            if dispatcher is not None:
                dispatcher.end_streams(self._session, info)
            delivered.set()
            self._queue.wake()
