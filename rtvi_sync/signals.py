"""A blinker signal for every event: ``signals.bot_ready.connect(fn, sender=client)`` calls `fn(client, event)`.

Without `sender`, a receiver is called for the events of every client in the process. Receivers are held weakly, as in
blinker: pass ``weak=False`` for a lambda or a function without other references.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator
from types import MethodType
from typing import Any, TypeVar

import attrs
from blinker import ANY, Signal

from .events import BY_NAME, RTVIEvent
from .protocol.dialects import load_payload
from .protocol.validation import BOOL, FUNCTION, Rule

F = TypeVar("F", bound=Callable[..., Any])


_ANY_SENDER = id(ANY)
# A sender is kept as a weak reference. Numbers and texts have none.
_CLIENT = Rule("an RTVIClient", lambda sender: type(sender).__weakrefoffset__ != 0)

_Receivers = dict[int, Callable[[], "Callable[..., Any] | None"]]


@attrs.frozen(eq=False, repr=False)
class _Sender:
    reference: weakref.ref[Any] | None  # None: ANY's
    receivers: _Receivers = attrs.field(factory=dict)  # by number


class EventSignal(Signal):
    """A blinker signal that several threads may connect, disconnect and send at once. Made by `rtvi_sync.signals`.

    It has no lock, because an application thread could hold it while a signal handler on that thread waits for an
    event. The dicts are changed in single steps, and copied before they are iterated over.
    """

    def __init__(self, event: RTVIEvent) -> None:
        super().__init__(f"Sent for each `{event.value}` event; receivers are called with the client and the `Event`.")
        self._event = event
        # By the sender's identity; receivers without a sender are under ANY's. `receivers` has the same numbers. A
        # process may have thousands of senders, and each event looks up its receivers. Senders stay until collected.
        self._senders: dict[int, _Sender] = {}
        self._numbers = itertools.count()

    def connect(self, receiver: F, sender: Any = ANY, weak: bool = True) -> F:
        """Call `receiver(client, event)` for the events of `sender`, a client. Without `sender`: of every client.

        Raises:
            TypeError: `receiver` is not a function, or is a coroutine or generator function, or `sender` is no client.
        """
        FUNCTION.check(receiver=receiver)  # with any parameters, because the application may send() keywords, too
        _CLIENT.check(sender=sender)
        BOOL.check(weak=weak)
        load_payload(self._event)
        number, key = next(self._numbers), id(sender)

        def gone(_: object) -> None:
            self._drop(key, number)

        def sender_gone(_: object) -> None:
            for each in self._senders.pop(key).receivers.copy():
                self.receivers.pop(each, None)

        known = self._senders.get(key) or self._senders.setdefault(
            key, _Sender(None if sender is ANY else weakref.ref(sender, sender_gone))
        )
        reference = _reference(receiver, gone) if weak else _always(receiver)
        known.receivers[number] = self.receivers[number] = reference
        return receiver

    def disconnect(self, receiver: Callable[..., Any], sender: Any = ANY) -> None:
        """Stop calling `receiver` for the events of `sender`. Without `sender`: of every client."""
        for key in list(self._senders) if sender is ANY else [id(sender)]:
            known = self._senders.get(key)
            for number, reference in known.receivers.copy().items() if known is not None else ():
                if reference() == receiver:
                    self._drop(key, number)

    def receivers_for(self, sender: Any) -> Generator[Callable[..., Any], None, None]:
        """Yield the live receivers of the events of `sender`, in the order of their connection."""
        yield from self.live_receivers(sender)

    def live_receivers(self, sender: object) -> list[Callable[..., Any]]:
        """Return the receivers that `receivers_for()` yields."""
        own, of_any_sender = self._senders.get(id(sender)), self._senders.get(_ANY_SENDER)
        references = own.receivers.copy() if own is not None else {}
        if of_any_sender is not None and of_any_sender.receivers:
            references = dict(sorted({**of_any_sender.receivers.copy(), **references}.items()))
        receivers: list[Callable[..., Any]] = []
        for reference in references.values():
            receiver = reference()
            if receiver is not None and receiver not in receivers:
                receivers.append(receiver)
        return receivers

    def has_receivers_for(self, sender: Any) -> bool:
        """Return whether the events of `sender` have a receiver."""
        return bool(self.receivers) and bool(self.live_receivers(sender))

    def _drop(self, key: int, number: int) -> None:
        known = self._senders.get(key)
        if known is not None:
            known.receivers.pop(number, None)
        self.receivers.pop(number, None)


def _reference(receiver: Callable[..., Any], gone: Callable[[object], None]) -> Callable[[], Callable[..., Any] | None]:
    """Return a weak reference to a receiver; `gone` is called when the receiver is collected.

    Not `weakref.WeakMethod`, whose callback writes "Exception ignored" to stderr at the exit of Python 3.11.
    """
    if not isinstance(receiver, MethodType):
        return weakref.ref(receiver, gone)
    owner, function = weakref.ref(receiver.__self__, gone), weakref.ref(receiver.__func__)

    def method() -> Callable[..., Any] | None:
        its_owner, its_function = owner(), function()
        return None if its_owner is None or its_function is None else MethodType(its_function, its_owner)

    return method


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


BY_EVENT: dict[RTVIEvent, EventSignal] = {event: EventSignal(event) for event in RTVIEvent}


def __getattr__(name: str) -> EventSignal:
    event = BY_NAME.get(name)
    if event is None:
        raise AttributeError(f"There is no signal {name!r}; signals are named as events are")
    return BY_EVENT[event]


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.lower() for name in RTVIEvent.__members__)])
