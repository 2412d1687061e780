"""Helpers of a client, one for each of the bot's services, and their registry."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..errors import RTVIError
from ..messages import RTVIMessage
from ..protocol.validation import FUNCTION, STRING, instance_of, iterable, mapping_of, snake_case
from ..session.event_bus import EventBus, takes_payload

if TYPE_CHECKING:
    from .client import RTVIClient

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound="RTVIClientHelper")


_CALLBACKS = mapping_of(FUNCTION).or_none


def _event_key(name: str) -> str:
    """Return the name of an event in snake_case: `llmFunctionCall` and `llm-function-call` are `llm_function_call`."""
    return snake_case(name.replace("-", "_"))


class RTVIClientHelper:
    """Base class of helpers. One helper serves one service of one client.

    A subclass adds methods that call `self.client.action()`. It lists in `message_types` the bot's messages that
    `handle_message()` handles, and in `event_names` the events that it makes from them by `emit()`.

    Args:
        callbacks: Functions to call for the helper's events: ``{"on_<event>": function}``.

    Raises:
        TypeError: There is no such event, or the function cannot be called with its payload.
    """

    #: Wire types of the messages that `handle_message()` takes.
    message_types: ClassVar[Sequence[str]] = ()
    #: Names of the events that the helper emits, in snake_case.
    event_names: ClassVar[Sequence[str]] = ()

    def __init__(self, callbacks: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self._client: weakref.ref[RTVIClient] | None = None  # weak, because the client refers to its helpers
        self._service: str | None = None
        # Changed in single steps, and copied before it is iterated over.
        self._handlers: dict[str, list[tuple[Callable[..., Any], bool]]] = {
            _event_key(name): [] for name in self.event_names
        }
        _CALLBACKS.check(callbacks=callbacks)
        for name, function in (callbacks or {}).items():
            snake = snake_case(name)
            if not snake.startswith("on_") or snake.removeprefix("on_") not in self._handlers:
                raise TypeError(
                    f"callbacks must be of {type(self).__name__}'s events: "
                    f"it has no callback {name!r}; it has {self._callback_names()}"
                )
            self.on(snake.removeprefix("on_"), function)

    def _callback_names(self) -> str:
        return ", ".join(f"on_{name}" for name in self.event_names) or "none"

    @property
    def client(self) -> RTVIClient:
        """The client with which the helper is registered.

        Raises:
            RTVIError: The helper is not registered, or the client was collected.
        """
        client = self._client() if self._client is not None else None
        if client is None:
            raise self._unregistered_error()
        return client

    @property
    def service(self) -> str:
        """The service for which the helper is registered.

        Raises:
            RTVIError: The helper is not registered.
        """
        if self._service is None:
            raise self._unregistered_error()
        return self._service

    def _unregistered_error(self) -> RTVIError:
        return RTVIError(f"This {type(self).__name__} serves no client: call client.register_helper(service, helper)")

    def get_message_types(self) -> Sequence[str]:
        """Return the wire types of the messages that the helper handles. Called once, when it is registered."""
        return self.message_types

    def handle_message(self, message: RTVIMessage) -> None:
        """Handle a message of one of `message_types`. Called like event handlers: in order, one at a time for each
        client.

        Args:
            message: The bot's message, from a session or from the answer to a single-turn action.
        """

    def on_registered(self) -> None:
        """Prepare to serve `client` and `service`. Called on the thread that registers the helper, before the first
        message.

        If it raises, `register_helper()` raises the same error, and the helper is not registered.
        """

    def on_unregistered(self) -> None:
        """Clean up before the helper forgets `client` and `service`. Called on the thread that unregisters it."""

    # -- events of its own --------------------------------------------------------------------------------------------

    def on(self, event: str, handler: F) -> F:
        """Call `handler(payload)`, or `handler()` if it takes no argument, for each `event` of the helper.

        Raises:
            ValueError: The helper has no such event.
            TypeError: The handler cannot be called with these arguments, or is a coroutine or generator function.
        """
        self._handlers_of(event).append((handler, takes_payload(handler)))
        return handler

    def off(self, event: str, handler: Callable[..., Any]) -> None:
        """Stop calling `handler` for `event`."""
        FUNCTION.check(handler=handler)
        handlers = self._handlers_of(event)
        for entry in [*handlers]:
            if entry[0] == handler:
                handlers.remove(entry)

    def emit(self, event: str, payload: Any = None) -> None:
        """Call the handlers of `event`. For subclasses, in `handle_message()`.

        Raises:
            Exception: The first error of a handler, after all handlers were called. The client publishes it as
                `handler_error`.
        """
        failures = []
        for handler, wants_payload in [*self._handlers_of(event)]:
            try:
                handler(*((payload,) if wants_payload else ()))
            except Exception as error:  # noqa: BLE001 - it is raised below
                failures.append(error)
        if failures:
            raise failures[0]

    def _handlers_of(self, event: str) -> list[tuple[Callable[..., Any], bool]]:
        STRING.check(event=event)
        handlers = self._handlers.get(_event_key(event))
        if handlers is None:
            raise ValueError(
                f"{type(self).__name__} has no event {event!r}; it has {', '.join(self.event_names) or 'none'}"
            )
        return handlers


_HELPER = instance_of("an RTVIClientHelper", RTVIClientHelper)
_TYPES = iterable("a list of message types")


class HelperRegistry:
    """The helpers of one client, by service."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        # By service: the helper, and the messages that it handles. Changed in single steps by any thread.
        self._helpers: dict[str, tuple[RTVIClientHelper, frozenset[str]]] = {}

    def register(self, client: RTVIClient, service: str, helper: H) -> H:
        """Register a helper. See `RTVIClient.register_helper()`."""
        _HELPER.check(helper=helper)
        wanted = helper.get_message_types()
        _TYPES.check(message_types=wanted)
        entry = helper, frozenset(wanted)
        if self._helpers.setdefault(service, entry) is not entry:
            raise RTVIError(f"The service {service!r} has a helper; call unregister_helper({service!r}) first")
        if helper._client is not None and helper._client() is not None:
            del self._helpers[service]
            raise RTVIError(f"This helper serves {helper._service!r} already; make one for each service")
        helper._client, helper._service = weakref.ref(client), service
        try:
            helper.on_registered()  # before any message, because the helper's handlers may need its results
        except BaseException:
            del self._helpers[service]
            helper._client = helper._service = None
            raise
        self._bus.add_helper(helper.handle_message, entry[1])
        return helper

    def get(self, service: str) -> RTVIClientHelper | None:
        """Return the helper of a service. See `RTVIClient.get_helper()`."""
        entry = self._helpers.get(service)
        return entry[0] if entry is not None else None

    def service_of(self, kind: type[RTVIClientHelper]) -> str | None:
        """Return the service that has a helper of this kind, or None."""
        return next(
            (service for service, (helper, _) in self._helpers.copy().items() if isinstance(helper, kind)), None
        )

    def unregister(self, service: str) -> None:
        """Unregister the helper of a service. See `RTVIClient.unregister_helper()`."""
        entry = self._helpers.pop(service, None)
        if entry is None:
            return
        helper, types = entry
        self._bus.remove_helper(helper.handle_message, types)
        try:
            helper.on_unregistered()
        finally:
            helper._client = helper._service = None
