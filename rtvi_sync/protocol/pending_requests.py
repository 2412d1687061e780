"""The requests that the bot has not answered yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .message import RTVIMessage

# The number of remembered requests without a waiter. A later answer to an older one is only an event.
_MAX_UNAWAITED = 1000


class Waiter(Protocol):
    """The call that waits for one answer. Only the first outcome counts."""

    def resolve(self, value: RTVIMessage) -> None:
        """End the wait with the answer."""

    def reject(self, error: BaseException) -> None:
        """End the wait with an error."""


class PendingRequest(NamedTuple):
    """A request without an answer.

    Attributes:
        type: The wire type of the request.
        waiter: The call that waits for the answer, or None.
    """

    type: str
    waiter: Waiter | None


class PendingRequests:
    """The pending requests of one session, by id. Any thread may use it.

    Every waiter ends exactly once: the answer takes it, `fail_all()` rejects it, or its call abandons it. Requests
    without a waiter are remembered too, because a refusal shows which features the bot lacks.

    There is no lock, because a signal handler may make a request on a thread that holds it. Each change of a container
    is one step.
    """

    def __init__(self) -> None:
        self._awaited: dict[str, PendingRequest] = {}
        # The types of requests without a waiter, and their ids, oldest first.
        self._unawaited: dict[str, str] = {}
        self._order: deque[str] = deque()
        self._make_error: Callable[[], BaseException] | None = None

    def add(self, id: str, type: str, waiter: Waiter | None = None) -> None:
        """Add a request. Call it before the request is sent, because the answer may arrive at once.

        Raises:
            BaseException: The error of `fail_all()`, if there is a waiter and `fail_all()` was called before.
            ValueError: Another call waits for an answer to `id`.
        """
        if waiter is None:
            self._remember(id, type)
            return
        request = PendingRequest(type, waiter)
        if self._awaited.setdefault(id, request) is not request:
            raise ValueError(f"A request with the id {id!r} is waiting for its answer already; use another id")
        # Checked after the request was added: either `fail_all()` finds the request, or has set this before.
        if self._make_error is not None:
            self._awaited.pop(id, None)
            raise self._make_error()

    def abandon(self, id: str, waiter: Waiter) -> None:
        """Remember the request without its waiter. Do nothing if the request was answered or is another call's."""
        request = self._awaited.get(id)
        if request is not None and request.waiter is waiter:
            self._remember(id, request.type)  # first, so that an answer in between finds the request
            self._awaited.pop(id, None)

    def type_of(self, id: str) -> str | None:
        """Return the type of a request. None if `id` is not pending."""
        request = self._awaited.get(id)
        return request.type if request is not None else self._unawaited.get(id)

    def take(self, id: str) -> PendingRequest | None:
        """Remove a request and return it. None if `id` is not pending."""
        request = self._awaited.pop(id, None)
        remembered = self._unawaited.pop(id, None)
        if request is None and remembered is not None:
            return PendingRequest(remembered, None)
        return request

    def ids(self) -> list[str]:
        """Return the ids of all pending requests."""
        return [*self._awaited.copy(), *self._unawaited.copy()]

    def fail_all(self, make_error: Callable[[], BaseException]) -> None:
        """Reject every waiter, and make `add()` fail from now on.

        Args:
            make_error: Makes one error for each waiter, because an error that is raised on two threads mixes their
                tracebacks. `add()` uses the first call's `make_error`.
        """
        if self._make_error is None:
            self._make_error = make_error
        for id_, request in self._awaited.copy().items():
            assert request.waiter is not None
            request.waiter.reject(make_error())
            self._awaited.pop(id_, None)

    def _remember(self, id: str, type: str) -> None:
        self._unawaited[id] = type
        self._order.append(id)
        if len(self._order) > _MAX_UNAWAITED:
            self._unawaited.pop(self._order.popleft(), None)
