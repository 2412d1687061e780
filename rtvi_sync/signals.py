"""A blinker signal for every event: ``signals.bot_ready.connect(fn, sender=client)``; `fn(client, event)` is called.

Without `sender` a receiver hears the events of every client in the process. Receivers are held weakly, as always in
blinker: pass ``weak=False`` for a lambda or a function that nothing else refers to.
"""

from __future__ import annotations

import inspect
import itertools
import weakref
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any, TypeVar

import attrs
from blinker import ANY, Signal

from .events import RTVIEvent

F = TypeVar("F", bound=Callable[..., Any])


@attrs.frozen(eq=False)
class _Connection:
    receiver: Callable[[], Callable[..., Any] | None]
    sender: Callable[[], object]  # returns ANY, or the sender, or None once that is gone

    def is_of(self, receiver: object, sender: object) -> bool:
        """True if it connects `receiver` with `sender` (`ANY`: with any)."""
        return self.receiver() == receiver and (sender is ANY or self.sender() is sender)


class EventSignal(Signal):
    """A signal that may be connected, disconnected and sent on several threads at once; plain blinker's may not.

    It takes no lock, which a thread of the program's could hold while a signal handler on it waits for an event: the
    dicts are changed in single steps, and walked in copies.
    """

    def __init__(self, doc: str) -> None:
        super().__init__(doc)
        self._connections: dict[int, _Connection] = {}  # by number; blinker's `receivers` has the same numbers
        self._numbers = itertools.count()

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        """Call `receiver(client, event)` for the events of `sender`, a client; without it for those of every client.

        Raises:
            TypeError: `receiver` is a coroutine function.
        """
        refuse_coroutine_function(receiver)
        number = next(self._numbers)

        def gone(_: object) -> None:
            self._drop(number)

        connection = _Connection(
            _reference(receiver, gone) if weak else _always(receiver),
            _always(ANY) if sender is ANY else weakref.ref(sender, gone),
        )
        self._connections[number] = connection
        self.receivers[number] = connection.receiver
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Call `receiver` no longer for the events of `sender`; without it for those of no client."""
        for number, connection in self._connections.copy().items():
            if connection.is_of(receiver, sender):
                self._drop(number)

    def receivers_for(self, sender: Any) -> Generator[Callable[..., Any], None, None]:
        """The live receivers of the events of `sender`, in the order in which they were connected."""
        called: list[Callable[..., Any]] = []
        for connection in self._connections.copy().values():
            receiver, of = connection.receiver(), connection.sender()
            if receiver is not None and (of is ANY or of is sender) and receiver not in called:
                called.append(receiver)
        yield from called

    def has_receivers_for(self, sender: Any) -> bool:
        """True if anybody listens to the events of `sender`."""
        return next(self.receivers_for(sender), None) is not None

    def _drop(self, number: int) -> None:
        self._connections.pop(number, None)
        self.receivers.pop(number, None)


def refuse_coroutine_function(function: Callable[..., Any]) -> None:
    """Raises TypeError if calling `function` would only make a coroutine."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        raise TypeError(
            f"{function!r} is a coroutine function; handlers are called, not awaited. Register a plain function."
        )


def _reference(receiver: Callable[..., Any], gone: Callable[[object], None]) -> Callable[[], Callable[..., Any] | None]:
    return weakref.WeakMethod(receiver, gone) if isinstance(receiver, MethodType) else weakref.ref(receiver, gone)


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
