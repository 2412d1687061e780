"""The events that a client's handlers receive, and the actions of some handlers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import attrs

from rtvi_sync import Event, RTVIClient, RTVIEvent, TransportState, signals
from tests.support.threads import reads


class ClumsyError(Exception):
    """The exception of a handler."""


@attrs.define(eq=False, kw_only=True)
class Heard:
    """One event at the receiver of signals.

    Attributes:
        event: The delivered event; a weak reference, because the traceback of an error may keep the client.
        type, received_at: Fields of the event.
        state: State in the event.
        from_bot: True if the event has a message of the bot.
        thread: Thread that called the receiver.
        allowed: False if that thread must not call handlers then.
        done: True if the receiver has returned.
    """

    event: weakref.ref[Event]
    type: RTVIEvent
    received_at: float
    state: TransportState | None
    from_bot: bool
    thread: str
    allowed: bool
    done: bool = False


class Ears:
    """Receives every event of one client, through both doors. It must not refer to the client.

    Attributes:
        manual: True if the client's events are delivered inside its calls only.
        heard: Events at the receiver of signals, in order.
        by_handlers: Types of the events at the handlers, in order.
        together: Number of times that two receivers ran at once.
        raised: Number of exceptions of handlers.
    """

    def __init__(self, client: RTVIClient, *, manual: bool) -> None:
        self.manual = manual
        self.heard: list[Heard] = []
        self.by_handlers: list[RTVIEvent] = []
        self.together = 0
        self.raised = 0
        self._running = 0
        # Guards `_running` and `_armed`. Held for an assignment.
        self._lock = threading.Lock()
        self._armed: list[tuple[RTVIEvent | None, Callable[[RTVIClient], object]]] = []
        self._delivering = threading.local()
        for event in RTVIEvent:
            client.on(event, self._handler_of(event))
            signals.BY_EVENT[event].connect(self._receive, sender=client)

    def _handler_of(self, event: RTVIEvent) -> Callable[[], None]:
        return lambda: self.by_handlers.append(event)

    def clumsy(self) -> None:
        """Raise."""
        self.raised += 1
        raise ClumsyError("sorry")

    def arm(self, act: Callable[[RTVIClient], object], at: RTVIEvent | None = None) -> None:
        """Do something in the receiver of the next event, or of the next one of a type."""
        with self._lock:
            self._armed.append((at, act))

    def _take_armed(self, type_: RTVIEvent) -> Callable[[RTVIClient], object] | None:
        for index, (at, act) in enumerate(self._armed):
            if at in (None, type_):
                del self._armed[index]
                return act
        return None

    @property
    def at_rest(self) -> bool:
        """True: nothing is armed, and no receiver is running."""
        with self._lock:
            return not self._armed and not self._running

    def delivering(self) -> DeliveryScope:
        """Return the scope of a call on this thread that may deliver events in manual mode."""
        return DeliveryScope(self._delivering)

    def disarm(self) -> None:
        """Do nothing in the next receiver."""
        with self._lock:
            self._armed.clear()

    def _receive(self, client: object, event: Event) -> None:
        assert isinstance(client, RTVIClient)
        thread = threading.current_thread()
        is_worker = thread.name.startswith("rtvi-worker-") and not reads(thread)
        allowed = getattr(self._delivering, "depth", 0) > 0 if self.manual else is_worker
        heard = Heard(
            event=weakref.ref(event),
            type=event.type,
            received_at=event.received_at,
            state=event.data if isinstance(event.data, TransportState) else None,
            from_bot=event.message is not None,
            thread=thread.name,
            allowed=allowed,
        )
        with self._lock:
            self.together += self._running
            self._running += 1
            act = self._take_armed(event.type)
        self.heard.append(heard)
        try:
            if act is not None:
                act(client)
        finally:
            heard.done = True
            with self._lock:
                self._running -= 1

    def sequence(self) -> list[Heard]:
        """Return the events so far, without those about handlers, which may arrive between others."""
        return [one for one in self.heard.copy() if one.type is not RTVIEvent.HANDLER_ERROR]

    def states(self) -> list[TransportState]:
        """Return the states so far."""
        return [one.state for one in self.sequence() if one.state is not None]


class DeliveryScope:
    """Marks a thread as one that delivers events."""

    def __init__(self, local: threading.local) -> None:
        self._local = local

    def __enter__(self) -> None:
        self._local.depth = getattr(self._local, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._local.depth -= 1
