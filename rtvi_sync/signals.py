"""A blinker signal for every event: ``signals.bot_ready.connect(fn, sender=client)``; `fn(client, event)` is called.

Without `sender` a receiver hears the events of every client in the process. Receivers are held weakly, as always in
blinker: pass ``weak=False`` for a lambda or a function that nothing else refers to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from blinker import ANY, Signal

from .events import RTVIEvent

F = TypeVar("F", bound=Callable[..., Any])


class EventSignal(Signal):
    """A signal that may be connected, disconnected and sent on several threads at once; plain blinker's may not."""

    def __init__(self, doc: str) -> None:
        super().__init__(doc)
        # Guards blinker's bookkeeping. Any thread may hold it, for a few dict operations. Reentrant, because a
        # receiver that is collected while the lock is held is taken off the books on the same thread.
        self._lock = threading.RLock()

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        """Call `receiver(client, event)` for the events of `sender`, a client; without it for those of every client."""
        with self._lock:
            return super().connect(receiver, sender, weak)

    def _disconnect(self, receiver_id: Any, sender_id: Any) -> None:
        with self._lock:
            super()._disconnect(receiver_id, sender_id)

    def receivers_of(self, sender: object) -> list[Callable[..., Any]]:
        """The live receivers of the events of `sender`, in no particular order."""
        if not self.receivers:
            return []
        with self._lock:
            return list(self.receivers_for(sender))

    def renew_lock(self) -> None:
        """In a forked child: whoever held the lock does not exist there."""
        self._lock = threading.RLock()


BY_EVENT: dict[RTVIEvent, EventSignal] = {
    event: EventSignal(f"Sent for each `{event.value}` event; receivers are called with the client and the `Event`.")
    for event in RTVIEvent
}


def __getattr__(name: str) -> EventSignal:
    event = RTVIEvent.__members__.get(name.upper())
    if event is None or name != name.lower():
        raise AttributeError(f"There is no signal {name!r}; signals are named as events are, in snake_case")
    return BY_EVENT[event]


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.lower() for name in RTVIEvent.__members__)])
