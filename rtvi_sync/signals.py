"""A blinker signal for every event: ``signals.bot_ready.connect(fn, sender=client)``; `fn(client, event)` is called.

Without `sender` a receiver hears the events of every client in the process. Receivers are held weakly, as always in
blinker: pass ``weak=False`` for a lambda or a function that nothing else refers to.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any, TypeVar

import attrs
from blinker import ANY, Signal

from .concurrency.lifecycle import register_for_fork
from .events import RTVIEvent

F = TypeVar("F", bound=Callable[..., Any])


class _Registry:
    """What all signals share."""

    def __init__(self) -> None:
        # Guards the replacement of a signal's connections, which are never changed in place. Any thread may hold it,
        # to build a tuple. Reentrant, because building one may run the finalizers of garbage, and those may
        # disconnect receivers.
        self.lock = threading.RLock()
        register_for_fork(self)

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()


_registry = _Registry()


@attrs.frozen(eq=False)
class _Connection:
    receiver: Callable[[], Callable[..., Any] | None]
    sender: Callable[[], object]  # returns ANY, or the sender, or None once that is gone

    def is_of(self, receiver: object, sender: object) -> bool:
        """True if it connects `receiver` with `sender` (`ANY`: with any)."""
        return self.receiver() == receiver and (sender is ANY or self.sender() is sender)


class EventSignal(Signal):
    """A signal that may be connected, disconnected and sent on several threads at once; plain blinker's may not.

    It keeps the connections in a tuple that is replaced as a whole, where blinker keeps dicts that it changes in
    place, also from the callbacks of weak references.
    """

    def __init__(self, doc: str) -> None:
        super().__init__(doc)
        self._connections: tuple[_Connection, ...] = ()

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        """Call `receiver(client, event)` for the events of `sender`, a client; without it for those of every client.

        Raises:
            TypeError: `receiver` is a coroutine function.
        """
        refuse_coroutine_function(receiver)
        connection = _Connection(_reference(receiver, weak), _always(ANY) if sender is ANY else weakref.ref(sender))
        self._replace(added=(connection,))
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Call `receiver` no longer for the events of `sender`; without it for those of no client."""
        self._replace(dropped=lambda connection: connection.is_of(receiver, sender))

    def receivers_for(self, sender: Any) -> Generator[Callable[..., Any], None, None]:
        """The live receivers of the events of `sender`, in the order in which they were connected."""
        called: list[Callable[..., Any]] = []
        stale = False
        for connection in self._connections:
            receiver, of = connection.receiver(), connection.sender()
            stale = stale or receiver is None or of is None
            if receiver is not None and (of is ANY or of is sender) and receiver not in called:
                called.append(receiver)
        if stale:
            self._replace()
        yield from called

    def has_receivers_for(self, sender: Any) -> bool:
        """True if anybody listens to the events of `sender`."""
        return next(self.receivers_for(sender), None) is not None

    def _replace(
        self, added: tuple[_Connection, ...] = (), dropped: Callable[[_Connection], bool] = lambda _: False
    ) -> None:
        """Add connections and drop some, as well as those whose receiver or sender is gone."""
        while True:
            with _registry.lock:
                # Kept until the lock is free: what is dropped with it may have a finalizer that comes back here.
                before = self._connections
                after = (
                    *(c for c in before if c.receiver() is not None and c.sender() is not None and not dropped(c)),
                    *added,
                )
                receivers = {number: c.receiver for number, c in enumerate(after)}
                if self._connections is before:
                    self._connections = after
                    # Blinker's public sign of whether anybody listens at all.
                    self.receivers = receivers
                    return


def refuse_coroutine_function(function: Callable[..., Any]) -> None:
    """Raises TypeError if calling `function` would only make a coroutine."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise TypeError(
            f"{function!r} is a coroutine function; handlers are called, not awaited. Register a plain function."
        )


def _reference(receiver: Callable[..., Any], weak: bool) -> Callable[[], Callable[..., Any] | None]:
    if not weak:
        return _always(receiver)
    return weakref.WeakMethod(receiver) if isinstance(receiver, MethodType) else weakref.ref(receiver)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


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
