"""The part of the client's interface for events. Type checkers see `event_overloads.pyi` in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from ..concurrency.deadline import Deadline
from ..events import Event, RTVIEvent, event_from
from ..protocol.validation import EVENT_CONDITION, FUNCTION, WAIT
from ..session.event_stream import EventStream
from ..session.params import Seconds
from .base import ClientBase

F = TypeVar("F", bound=Callable[..., Any])

_WHERE = EVENT_CONDITION.but("pass a time limit as timeout=")


class ClientEvents(ClientBase):
    """Handlers of events, and calls that wait for events. Every method may be called on any thread."""

    @overload
    def on(self, event: str | RTVIEvent) -> Callable[[F], F]: ...
    @overload
    def on(self, event: str | RTVIEvent, handler: F) -> F: ...
    def on(self, event: str | RTVIEvent, handler: F | None = None) -> F | Callable[[F], F]:
        """Call `handler(payload)`, or `handler()` if it takes nothing, for each `event`. Also a decorator.

        Handlers of one client run one at a time, in the order of the events, never on an I/O thread. They are held
        strongly; a handler that is registered twice is called twice. If a handler raises, the error is logged and
        published as `handler_error`.

        Raises:
            ValueError: there is no such event.
            TypeError: the handler cannot be called so, or is a coroutine or generator function.
        """
        return self._add(event, handler, once=False)

    @overload
    def once(self, event: str | RTVIEvent) -> Callable[[F], F]: ...
    @overload
    def once(self, event: str | RTVIEvent, handler: F) -> F: ...
    def once(self, event: str | RTVIEvent, handler: F | None = None) -> F | Callable[[F], F]:
        """Call `handler` for the next `event` only; otherwise like `on()`."""
        return self._add(event, handler, once=True)

    def off(self, event: str | RTVIEvent, handler: Callable[..., Any] | None = None) -> None:
        """Stop calling `handler`, however often it is registered, for `event`; without it, every handler."""
        if handler is not None:
            FUNCTION.check(handler=handler)
        self._bus.remove(event, handler)

    def events(self, *events: str | RTVIEvent, timeout: Seconds | None = None) -> EventStream:
        """Return the `events` (none: all) from now on, as an iterator and context manager.

        It ends with the session that is active or under way, and with the next one if there is none; a call of
        `connect()` that fails counts as one, however many attempts it makes. When an event is returned, every handler
        of earlier events has returned.

        Args:
            timeout: seconds to wait for each event; then `RequestTimeoutError`. None: no limit.

        Raises:
            ValueError: there is no such event.
            ForkedProcessError: the client was connected when the process forked.
        """
        WAIT.or_none.check(timeout=timeout)
        self._use_turns(*(event_from(event, "events") for event in events))
        return self._bus.open_stream(events, timeout)

    def wait_for(
        self,
        event: str | RTVIEvent,
        where: Callable[[Event], object] | None = None,
        timeout: Seconds | None = None,
    ) -> Event:
        """Wait for the next `event` for which `where(event)` is true.

        It listens from the call on: an event that an earlier call of yours causes may have passed by then. In that case
        open `events()` first.

        Raises:
            RequestTimeoutError: not within `timeout` seconds.
            DisconnectedError: the session ended first; also if it has ended already and no other has begun, unless
                `event` is one that begins a session (`bot_ready`, for instance).
            WouldDeadlockError: called inside a handler of this client.
            ForkedProcessError: the client was connected when the process forked.
            TypeError: `where` is no function. Pass a time limit as ``timeout=5``.
        """
        _WHERE.check(where=where)
        WAIT.or_none.check(timeout=timeout)
        self._use_turns(event_from(event))
        return self._bus.streams.wait_for(event, where, timeout)

    def process_events(self, timeout: Seconds | None = 0.0) -> int:
        """Wait up to `timeout` seconds for a first event, then run the handlers of all that are queued. In manual mode.

        It waits no longer when a session has ended.

        Args:
            timeout: seconds; None: no limit.

        Returns:
            How many events with a listener were delivered, and functions called that the bot's model calls.

        Raises:
            RTVIError: the client is not in manual mode.
            WouldDeadlockError: called inside a handler.
        """
        WAIT.or_none.check(timeout=timeout)
        return self._bus.run_queued(Deadline(timeout))

    def _add(self, event: str | RTVIEvent, handler: F | None, *, once: bool) -> F | Callable[[F], F]:
        event = event_from(event)
        self._use_turns(event)
        if handler is not None:
            self._bus.add(event, handler, once=once)
            return handler

        def register(function: F) -> F:
            self._bus.add(event, function, once=once)
            return function

        return register
