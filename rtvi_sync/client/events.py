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
        """Call `handler(payload)`, or `handler()` if it takes no argument, for each `event`. Also a decorator.

        The handlers of one client run one at a time, in the order of the events, never on an I/O thread. The client
        holds a strong reference to each handler. A handler that is registered twice is called twice. If a handler
        raises, the client logs the error and publishes `handler_error`.

        Raises:
            ValueError: There is no such event.
            TypeError: The handler cannot be called with these arguments, or is a coroutine or generator function.
        """
        return self._add(event, handler, once=False)

    @overload
    def once(self, event: str | RTVIEvent) -> Callable[[F], F]: ...
    @overload
    def once(self, event: str | RTVIEvent, handler: F) -> F: ...
    def once(self, event: str | RTVIEvent, handler: F | None = None) -> F | Callable[[F], F]:
        """Call `handler` for the next `event` only. Otherwise like `on()`."""
        return self._add(event, handler, once=True)

    def off(self, event: str | RTVIEvent, handler: Callable[..., Any] | None = None) -> None:
        """Unregister `handler` for `event`, however often it is registered. Without `handler`: every handler."""
        if handler is not None:
            FUNCTION.check(handler=handler)
        self._bus.remove(event, handler)

    def events(self, *events: str | RTVIEvent, timeout: Seconds | None = None) -> EventStream:
        """Return an iterator and context manager of `events`, from now on. Without arguments: of all events.

        It ends with the current session or connection attempt. If there is none, it ends with the next session. A call
        of `connect()` that fails counts as one session, however many attempts it makes. When the iterator returns an
        event, every handler of earlier events has returned.

        Args:
            timeout (seconds): Limit for each event; then `RequestTimeoutError`. None: no limit.

        Raises:
            ValueError: There is no such event.
            ForkedProcessError: The client was connected when the process forked.
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

        Events from before the call don't count. If your own call causes the event, it may fire before `wait_for()` is
        called. In that case open `events()` first.

        Args:
            event: The event.
            where: Called with each such event. None: the next one counts.
            timeout (seconds): Limit of the call. None: no limit.

        Raises:
            RequestTimeoutError: No such event within `timeout` seconds.
            DisconnectedError: The session ended first, or had ended before the call. If `event` can start a session, as
                `bot_ready` can, the call waits for the next session instead.
            WouldDeadlockError: Called in a handler of this client.
            ForkedProcessError: The client was connected when the process forked.
            TypeError: `where` is not a function. Pass a time limit as ``timeout=5``.
        """
        _WHERE.check(where=where)
        WAIT.or_none.check(timeout=timeout)
        self._use_turns(event_from(event))
        return self._bus.streams.wait_for(event, where, timeout)

    def process_events(self, timeout: Seconds | None = 0.0) -> int:
        """Wait up to `timeout` seconds for an event, then run the handlers of all queued events. In manual mode.

        The wait also ends when a session ends.

        Args:
            timeout (seconds): Limit of the wait. None: no limit.

        Returns:
            The number of delivered events that had a listener, plus the functions run for the bot's model.

        Raises:
            RTVIError: The client is not in manual mode.
            WouldDeadlockError: Called in a handler.
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
