"""Live spans of OpenTelemetry for the conversations of a client.

    from rtvi_sync import RTVIClient
    from rtvi_sync.otel import instrument

    client = RTVIClient.for_url("http://localhost:7860")
    instrument(client)
    with client:
        client.ask("Do you have a table for four?")

Each session is a span `conversation`. It contains a span `connect` and a span `turn` for each turn; a turn contains a
span `execute_tool NAME` for each function that the bot called. A failed attempt to connect is a span `connect` alone.
docs/guides/otel.md lists the attributes.

This module needs the extra `otel`, the API of OpenTelemetry. It does nothing unless the application installs and sets
up an SDK.
"""

from __future__ import annotations

import uuid
import weakref
from typing import TYPE_CHECKING

import attrs

from ._version import __version__
from .client.client import RTVIClient
from .concurrency.clock import monotonic, wall_time
from .conversation.turn import Turn
from .errors import MissingExtraError
from .events import Event, RTVIEvent
from .protocol.states import TransportState
from .protocol.text import encodable
from .protocol.validation import BOOL, NAME, Rule, instance_of
from .recording.spans import CONNECT, CONVERSATION, SCOPE, Attributes, PlannedSpan, conversation_attributes, turn_span
from .signals import BY_EVENT

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["Instrumentation", "instrument"]

_PROVIDER = Rule(
    "a TracerProvider of OpenTelemetry", lambda given: callable(getattr(given, "get_tracer", None)), lambda _: True
)
_RESTING = (TransportState.DISCONNECTED, TransportState.ERROR)


def instrument(
    client: RTVIClient,
    *,
    tracer_provider: TracerProvider | None = None,
    conversation_id: str | None = None,
    content: bool = False,
) -> Instrumentation:
    """Make spans of a client's conversations from now on. Any thread may call it, once for each client.

    The spans are children of the current span of the calling thread, whatever thread asks, connects or handles events.
    Their times are the `timings` of the turns. Call it before `connect()`. If called later, the spans have no
    `connect`, and a turn in progress has no latencies. Close the client at the end: a conversation is exported when its
    session has ended.

    Args:
        client: The client.
        tracer_provider: Makes the tracer. None: the global provider.
        conversation_id: The `conversation.id` of all spans. Pipecat reads no trace context. To find both sides of a
            conversation, give the bot the same id in the body of the start request. None: a new id for each session.
        content: True: the spans also contain the words, and the arguments and results of functions.

    Raises:
        MissingExtraError: The API of OpenTelemetry is not installed.
        UnsupportedFeatureError: The client was made with `track_turns=False`.
        TypeError, ValueError: An argument cannot be used.
    """
    instance_of("an RTVIClient", RTVIClient).check(client=client)
    _PROVIDER.or_none.check(tracer_provider=tracer_provider)
    NAME.or_none.check(conversation_id=conversation_id)
    BOOL.check(content=content)
    try:
        from opentelemetry.context import get_current
        from opentelemetry.trace import get_tracer
    except ModuleNotFoundError as error:
        raise MissingExtraError("rtvi_sync.otel", "otel") from error
    client.turns()  # from this call on turns have their latencies
    tracer = get_tracer(SCOPE, __version__, tracer_provider)
    return Instrumentation(client, tracer, get_current(), conversation_id, content=content)


@attrs.frozen
class _Conversation:
    """The span of a session, and its id."""

    span: Span
    id: str


class Instrumentation:
    """The spans of one client. Made by `instrument()`. The client refers to it, but not the other way round.

    The spans are made on the threads of the client's handlers.
    """

    def __init__(
        self, client: RTVIClient, tracer: Tracer, parent: Context, conversation_id: str | None, *, content: bool
    ) -> None:
        self._client = weakref.ref(client)
        self._tracer = tracer
        self._given_id = conversation_id
        self._content = content
        self._parent = parent
        self._offset = wall_time() - monotonic()
        # Used only on the client's queue, which runs one handler at a time.
        self._state = TransportState.DISCONNECTED
        self._began_at: float | None = None  # of the current attempt
        # The conversation in progress, if any. Changed in single steps, because `close()` takes it on another thread.
        self._going_on: list[_Conversation] = []
        self._receivers = {
            RTVIEvent.TRANSPORT_STATE_CHANGED: self._on_state,
            RTVIEvent.TURN_ENDED: self._on_turn,
            RTVIEvent.DISCONNECTED: self._on_disconnected,
        }
        if client.connected:
            self._state = TransportState.READY
            self._going_on = [self._start(monotonic())]
        for event, receiver in self._receivers.items():
            BY_EVENT[event].connect(receiver, sender=client, weak=False)

    def close(self) -> None:
        """End the span of a conversation in progress, with its current turns, and make no more. Any thread."""
        client = self._client()
        if client is None:
            return
        for event, receiver in self._receivers.items():
            BY_EVENT[event].disconnect(receiver, sender=client)
        now = monotonic()
        conversation = self._take()
        if conversation is not None:
            for turn in client.turns():
                if turn.is_open:
                    self._add_turn(turn, conversation, now)
            conversation.span.end(self._nanos(now))

    # -- events: on the client's queue --------------------------------------------------------------------------------

    def _on_state(self, _: RTVIClient, event: Event) -> None:
        before, self._state = self._state, event.data
        if self._state is TransportState.READY:
            began_at = self._began_at if self._began_at is not None else event.received_at
            conversation = self._start(began_at)
            self._add_connect(began_at, event.received_at, self._below(conversation.span))
            self._going_on[:] = [conversation]
            self._began_at = None
        elif self._state in _RESTING:
            if self._began_at is not None:
                error = f"the bot was not ready: the attempt ended in the state {before.value}"
                self._add_connect(self._began_at, event.received_at, self._parent, error)
            self._began_at = None
        elif before in _RESTING:
            self._began_at = event.received_at

    def _on_turn(self, _: RTVIClient, event: Event) -> None:
        for conversation in [*self._going_on]:
            is_cut = self._state is not TransportState.READY
            self._add_turn(event.data, conversation, event.received_at, is_cut=is_cut)

    def _on_disconnected(self, _: RTVIClient, event: Event) -> None:
        conversation = self._take()
        if conversation is not None:
            info = event.data
            if info.error is not None or info.initiator == "network":
                _fail(conversation.span, info.describe())
            conversation.span.end(self._nanos(event.received_at))

    # -- spans --------------------------------------------------------------------------------------------------------

    def _start(self, at: float) -> _Conversation:
        id_ = self._given_id or str(uuid.uuid4())
        span = self._tracer.start_span(
            CONVERSATION, self._parent, attributes=conversation_attributes(id_), start_time=self._nanos(at)
        )
        return _Conversation(span, id_)

    def _take(self) -> _Conversation | None:
        try:
            return self._going_on.pop()
        except IndexError:
            return None

    def _add_connect(self, start: float, end: float, parent: Context, error: str | None = None) -> None:
        none: Attributes = {}
        self._add(PlannedSpan(name=CONNECT, start=start, end=end, attributes=none, error=error), parent)

    def _add_turn(self, turn: Turn, conversation: _Conversation, now: float, *, is_cut: bool = False) -> None:
        planned = turn_span(turn, conversation.id, now, is_cut=is_cut, content=self._content)
        self._add(planned, self._below(conversation.span))

    def _add(self, planned: PlannedSpan, parent: Context) -> None:
        # An exporter encodes texts. If it met half of a character, which a bot may send, it would drop all its spans.
        attributes = {
            name: encodable(value) if isinstance(value, str) else value for name, value in planned.attributes.items()
        }
        name = encodable(planned.name)
        span = self._tracer.start_span(name, parent, attributes=attributes, start_time=self._nanos(planned.start))
        for at, name in planned.events:
            span.add_event(name, timestamp=self._nanos(at))
        if planned.error is not None:
            _fail(span, encodable(planned.error))
        for child in planned.children:
            self._add(child, self._below(span))
        span.end(self._nanos(planned.end))

    def _below(self, span: Span) -> Context:
        """Return the context of the children of a span."""
        from opentelemetry.trace import set_span_in_context

        return set_span_in_context(span, self._parent)

    def _nanos(self, at: float) -> int:
        return round(1e9 * (self._offset + at))


def _fail(span: Span, reason: str) -> None:
    """Mark a span as failed."""
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR, reason)
